"""What a turn of a loop costs at most, by what it does: the dearest path through the loop's basic blocks among those that pass some
instructions (marks) a given number of times.

Each pipe's cycles are maximal by themselves: a path may not exist on which all are. Loops within the loop take as many turns as the
caller says; what is counted must not lie in them.
"""
import sass


class Blocks:
    """Basic blocks of a kernel, and where each goes on."""

    def __init__(self, kernel):
        code = kernel.code
        starts = {0} | set(kernel.labels.values())
        starts |= {at + 1 for at, i in enumerate(code) if ends_block(i)}
        self.starts = sorted(s for s in starts if s < len(code))
        self.number = {start: n for n, start in enumerate(self.starts)}
        self.kernel, self.next = kernel, []
        ends = self.starts[1:] + [len(code)]
        barriers = {}  # where each BSSY in force sends its BSYNC; they nest in the order of the code
        for start, end in zip(self.starts, ends):
            for i in code[start:end]:
                if i.opcode == "BSSY":
                    barriers[i.text.split()[1].rstrip(",")] = i.target
            self.next.append(self.goes_to(code[end - 1], end, barriers))

    def goes_to(self, last, after, barriers):
        name = last.opcode.split(".")[0]
        to = []
        if name == "BRA" and not last.opcode.startswith("BRA.DIV"):  # warps of these kernels do not diverge there
            to.append(last.target)
        elif name == "BSYNC":
            to.append(barriers[last.text.split()[1]])
        falls = last.conditional or name not in ("BRA", "BSYNC", "EXIT", "RET") or last.opcode.startswith("BRA.DIV")
        numbers = [self.number[self.kernel.labels[t]] for t in to if self.kernel.labels.get(t) in self.number]
        return numbers + ([self.number[after]] if falls and after in self.number else [])

    def code(self, n):
        end = self.starts[n + 1] if n + 1 < len(self.starts) else len(self.kernel.code)
        return self.kernel.code[self.starts[n]:end]


def ends_block(i):
    return i.opcode.split(".")[0] in ("BRA", "BSYNC", "EXIT", "RET")


def of_loop(blocks, loop):
    """The loop's blocks: those that reach its end without passing its head."""
    head, tail = blocks.number[loop.begin], max(n for n, s in enumerate(blocks.starts) if s <= loop.end)
    before = {}
    for n, following in enumerate(blocks.next):
        for m in following:
            before.setdefault(m, []).append(n)
    found, open_ = {head, tail}, [tail] if tail != head else []
    while open_:
        for n in before.get(open_.pop(), []):
            if n not in found:
                found.add(n)
                open_.append(n)
    return head, tail, found


def in_order(blocks, head, inside):
    """The loop's blocks so that each comes before those it goes to, and the edges back that were left out."""
    order, state, back = [], {}, []
    stack = [(head, iter(blocks.next[head]))]
    state[head] = "open"
    while stack:
        n, following = stack[-1]
        for m in following:
            if m == head or m not in inside:
                continue
            if state.get(m) == "open":
                back.append((n, m))
            elif m not in state:
                state[m] = "open"
                stack.append((m, iter(blocks.next[m])))
                break
        else:
            state[n] = "done"
            order.append(n)
            stack.pop()
    return order[::-1], back


def dearest(kernel, loop, arch, marks, inner_turns=None, wanted=lambda times: True):
    """{(times of each mark on the path, …): {pipe: cycles}} for whole turns. marks: predicates of instructions. Paths that at the end
    of a block are not `wanted` are dropped."""
    blocks = Blocks(kernel)
    head, tail, inside = of_loop(blocks, loop)
    order, back = in_order(blocks, head, inside)
    inner = set()
    for n, m in back:
        _, _, found = of_loop(blocks, sass.Loop(blocks.starts[m], blocks.starts[n]))
        inner |= found & inside
    if inner and inner_turns is None:
        raise SystemExit(f"{kernel.name}: the hot loop has a loop of unknown turns")
    if any(mark(i) for mark in marks for n in inner for i in blocks.code(n)):
        raise SystemExit(f"{kernel.name}: a loop within the hot loop does what is counted")
    none = (0,) * len(marks)
    at = {head: {none: {}}}
    for n in order:
        turns = inner_turns if n in inner else 1
        own = {pipe: c * turns for pipe, c in sass.cycles_of(blocks.code(n), arch).items()}
        times = tuple(sum(mark(i) for i in blocks.code(n)) for mark in marks)
        here = {}
        for before, cycles in at.get(n, {}).items():
            key = tuple(a + b for a, b in zip(before, times))
            if wanted(key):
                here[key] = {p: cycles.get(p, 0) + own.get(p, 0) for p in set(cycles) | set(own)}
        at[n] = here
        for m in blocks.next[n]:
            if m == head or m not in inside or (n, m) in back:
                continue
            to = at.setdefault(m, {})
            for key, cycles in here.items():
                seen = to.setdefault(key, {})
                for pipe, c in cycles.items():
                    seen[pipe] = max(seen.get(pipe, 0), c)
    return at[tail]
