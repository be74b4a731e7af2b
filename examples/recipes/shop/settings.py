"""The settings of a Django project that needs nothing but its command."""

INSTALLED_APPS = ["examples.recipes.shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
SECRET_KEY = "only for an example"
USE_TZ = True
