"""Findings are counted exactly and kept in part."""

from flintmq.offline.findings import Finding, Findings, Kind, Severity, Streak


def test_counts_are_exact_where_details_are_cut() -> None:
    findings = Findings(details_max=2)
    for offset in range(5):
        findings.problem(Kind.UNIT_WRONG, "q", offset, "wrong")
    findings.note(Kind.LEFTOVER, "q", None, "old", count=7)
    assert findings.total(Severity.PROBLEM) == 5
    assert findings.total(Severity.NOTE) == 7
    assert [finding.offset for finding in findings.of(Severity.PROBLEM)] == [0, 1]
    assert findings.shown[Severity.PROBLEM, Kind.UNIT_WRONG] == 2


def test_merging_keeps_the_limit_and_the_counts() -> None:
    one, other = Findings(details_max=2), Findings(details_max=2)
    for findings in (one, other):
        findings.problem(Kind.CHECKSUM, "a", 1, "bad")
        findings.problem(Kind.CHECKSUM, "b", 2, "bad")
    one.merge(other)
    assert one.total(Severity.PROBLEM) == 4
    assert len(list(one)) == 2
    assert one.shown[Severity.PROBLEM, Kind.CHECKSUM] == 2


def test_a_streak_joins_neighbours_only() -> None:
    findings = Findings()
    streak = Streak(findings)
    for offset in (3, 4, 5, 7):
        streak.add(Severity.PROBLEM, Kind.UNIT_AHEAD, "q", offset, f"leads to {offset}")
    streak.add(Severity.NOTE, Kind.UNIT_AHEAD, "q", 8, "leads to 8")
    streak.close()
    streak.close()
    assert list(findings) == [
        Finding(Severity.PROBLEM, Kind.UNIT_AHEAD, "q", 3, "leads to 3 (and 2 more after it)"),
        Finding(Severity.PROBLEM, Kind.UNIT_AHEAD, "q", 7, "leads to 7"),
        Finding(Severity.NOTE, Kind.UNIT_AHEAD, "q", 8, "leads to 8"),
    ]
    assert findings.total(Severity.PROBLEM) == 4
