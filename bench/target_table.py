"""Figures beside others' and beside their targets, as one table: what benchmarks print."""
import sys


class TargetTable:
    def __init__(self):
        self.rows = []

    def add(self, what, ours, unit, other, name, target, least=True):
        """One line, which stderr sees at once; `target` is of ours over the other's figure."""
        if ours is None or not other:
            row = (what, "-" if ours is None else f"{ours:.4g} {unit}", "-", "-", f"{target:g}", "not measured")
        else:
            ratio = ours / other
            met = ratio >= target if least else ratio <= target
            row = (what, f"{ours:.4g} {unit}", f"{other:.4g} {name}", f"{ratio:.2f}", f"{'>=' if least else '<='} {target:g}",
                   "met" if met else "BELOW" if least else "ABOVE")
        self.rows.append(row)
        print("  ".join(row), file=sys.stderr, flush=True)

    def show(self):
        head = ("", "ours", "beside", "ratio", "target", "")
        widths = [max(len(r[i]) for r in [head, *self.rows]) for i in range(6)]
        for r in [head, *self.rows]:
            print("  ".join(c.ljust(w) for c, w in zip(r, widths)).rstrip())
