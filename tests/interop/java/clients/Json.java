import java.util.Iterator;
import java.util.Map;

/** Writes JSON. The two client versions bring different libraries for it, so this needs none. */
final class Json {
    private Json() {}

    static String text(Object value) {
        StringBuilder out = new StringBuilder();
        write(out, value);
        return out.toString();
    }

    private static void write(StringBuilder out, Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            out.append(value);
        } else if (value instanceof Map<?, ?> map) {
            out.append('{');
            for (var entries = map.entrySet().iterator(); entries.hasNext(); ) {
                var entry = entries.next();
                quote(out, String.valueOf(entry.getKey()));
                out.append(':');
                write(out, entry.getValue());
                comma(out, entries);
            }
            out.append('}');
        } else if (value instanceof Iterable<?> items) {
            out.append('[');
            for (var each = items.iterator(); each.hasNext(); ) {
                write(out, each.next());
                comma(out, each);
            }
            out.append(']');
        } else {
            quote(out, String.valueOf(value));
        }
    }

    private static void comma(StringBuilder out, Iterator<?> rest) {
        if (rest.hasNext()) {
            out.append(',');
        }
    }

    private static void quote(StringBuilder out, String text) {
        out.append('"');
        for (char each : text.toCharArray()) {
            if (each == '"' || each == '\\') {
                out.append('\\').append(each);
            } else if (each < ' ' || each > '~') {
                out.append(String.format("\\u%04x", (int) each));
            } else {
                out.append(each);
            }
        }
        out.append('"');
    }
}
