"""Machine code from nvdisasm: kernels, their loops, and how long each pipe is busy with an instruction.

The cost of an instruction is in cycles of one quarter of a multiprocessor (a scheduler with its pipes), for one warp. From the
throughput table of the CUDA C++ Programming Guide (results per cycle and multiprocessor): 32 lanes · 4 quarters / throughput.
Tensor instructions: dense rate of the data sheets over clock and multiprocessors; what is less for mma than for wgmma, see below.
"""
import collections
import dataclasses
import re
import subprocess


@dataclasses.dataclass
class Instruction:
    opcode: str  # HMMA.16816.F32.BF16
    text: str
    target: str = ""  # label of a branch, or where a BSYNC of this barrier will go on (BSSY)
    conditional: bool = False


@dataclasses.dataclass
class Loop:
    begin: int
    end: int  # its last instruction, the branch back


class Kernel:
    def __init__(self, name):
        self.name, self.code, self.labels = name, [], {}

    def loops(self):
        found = [Loop(self.labels[i.target], at) for at, i in enumerate(self.code)
                 if i.opcode.startswith("BRA") and i.target in self.labels and self.labels[i.target] <= at]
        return sorted(found, key=lambda l: l.end - l.begin)

    def hot_loop(self):
        """The smallest loop that holds the most tensor instructions, else loads; None without loops."""
        # A wait that the compiler put behind the kernel's end makes a loop of all between: that is none.
        loops = [l for l in self.loops() if not any(i.opcode == "EXIT" for i in self.code[l.begin:l.end + 1])]
        for wanted in (TENSOR, LOADS, {"LDS"}):
            counts = [sum(i.opcode.split(".")[0] in wanted for i in self.code[l.begin:l.end + 1]) for l in loops]
            if max(counts, default=0) > 0:
                return loops[counts.index(max(counts))]
        return None


TENSOR = {"HMMA", "IMMA", "BMMA", "HGMMA", "IGMMA", "BGMMA"}
LOADS = {"LDG", "LDGSTS", "UBLKCP"}

# Opcode → (pipe, cycles). alu: integers but products, logic, comparisons; fma: floats and integer products (of which sm_80 does
# one in two cycles); memory: its queue takes a warp in 2 cycles, the data is counted in bytes; control costs an issue slot alone.
PIPES = {}
for pipe, cycles, opcodes in (
        ("fma", 1, "FADD FMUL FFMA FSWZADD FADD32I FMUL32I FFMA32I HADD2 HMUL2 HFMA2 HADD2_32I HFMA2_32I"),
        ("fma", 2, "IMAD IDP"),
        ("alu", 2, "IADD3 IADD VIADD LEA LOP3 LOP SHF SHL SHR ISETP IMNMX VIADDMNMX VIMNMX VIMNMX3 SEL PRMT MOV IABS PLOP3 P2R R2P "
                   "SGXT BMSK ICMP I2FP F2FP VABSDIFF LOP32I MOV32I CS2R ISCADD PSETP FSETP FSEL FMNMX FMNMX3 FCHK FSET HSETP2 "
                   "HSET2 HMNMX2"),
        ("double", 2, "DADD DMUL DFMA DSETP DMNMX"),
        ("special", 8, "MUFU F2F F2I I2F FRND POPC FLO BREV I2I"),
        ("memory", 2, "LDG STG LD ST LDS STS LDL STL LDC LDSM STSM LDGSTS ATOM ATOMG ATOMS RED REDG SHFL MATCH ATOMGG MOVM REDUX "
                      "CCTL"),
        ("uniform", 1, "UIADD3 UIADD UIMAD ULDC LDCU ULEA ULOP3 USHF UMOV UISETP USEL UPRMT UPLOP3 VOTEU UP2UR UPOPC UFLO R2UR "
                       "S2UR UBLKCP SYNCS UBMSK USGXT UCGABAR_ARV UCGABAR_WAIT UF2FP UVIADD ULOP UBREV UCLEA UIABS UVIMNMX"),
        ("branch", 2, "BRA BRX BSSY BSYNC BREAK EXIT RET CALL JMP WARPSYNC ENDCOLLECTIVE BMOV BRXU"),
        ("control", 0, "NOP BAR DEPBAR LDGDEPBAR MEMBAR ERRBAR CGAERRBAR S2R VOTE YIELD WARPGROUP NANOSLEEP ACQBULK PREEXIT ARRIVES "
                       "ELECT FENCE UTMACMDFLUSH UTMALDG UTMASTG USETMAXREG LEPC B2R R2B UBLKPF DEPBAR ELECT ACQSHMINIT UCGABAR")):
    for opcode in opcodes.split():
        PIPES[opcode] = (pipe, cycles)

# Multiply-adds a cycle and quarter: A100 312 TFLOP/s, H100 989, B200 2250 (bf16, dense). Hopper's mma.sync (HMMA, IMMA) reach 62.9 %
# of what wgmma (HGMMA, IGMMA) does: measured by Luo et al., "Dissecting the NVIDIA Hopper Architecture through Microbenchmarking",
# arXiv:2501.12084. b1: 4992 TOPS of the A100's data sheet; of Hopper none is published, and half of it is taken.
HOPPER_MMA = 0.629
TENSOR_RATES = {
    "sm_80": {"HMMA": 256, "IMMA": 512, "BMMA": 4096},
    "sm_90a": {"HMMA": HOPPER_MMA * 512, "IMMA": HOPPER_MMA * 1024, "BMMA": 2048, "HGMMA": 512, "IGMMA": 1024},
    "sm_100": {"HMMA": 1024, "IMMA": 1024},
}


def cost(i, arch):
    """(pipe, cycles) of an instruction; an error that names it if it is not known."""
    opcode = i.opcode.split(".")[0]
    if opcode in TENSOR:
        if opcode not in TENSOR_RATES[arch]:
            raise SystemExit(f"no rate of {opcode} on {arch}: {i.text}")
        return "tensor", products(i) / TENSOR_RATES[arch][opcode]
    if opcode not in PIPES:
        raise SystemExit(f"no pipe of {opcode}: {i.text}; add it to sass.py")
    pipe, cycles = PIPES[opcode]
    if arch == "sm_80" and (pipe == "double" or (pipe == "fma" and opcode[0] == "F")):
        cycles *= 2
    return pipe, cycles


def products(i):
    """Multiply-adds of a tensor instruction, by its shape: HMMA.16816, HGMMA.64x128x16."""
    if m := re.search(r"\.(\d+)x(\d+)x(\d+)", i.opcode):
        return int(m[1]) * int(m[2]) * int(m[3]) / 4  # each of four warps a quarter
    shapes = {"16816": 16 * 8 * 16, "1688": 16 * 8 * 8, "16832": 16 * 8 * 32, "168256": 16 * 8 * 256, "88128": 8 * 8 * 128,
              "168128": 16 * 8 * 128, "8816": 8 * 8 * 16, "8832": 8 * 8 * 32, "16864": 16 * 8 * 64}
    for part in i.opcode.split(".")[1:]:
        if part in shapes:
            return shapes[part]
    raise SystemExit(f"no known shape: {i.text}")


def bytes_of(i):
    """Bytes that a warp brings from device memory."""
    if i.opcode.split(".")[0] not in ("LDG", "LDGSTS"):
        return 0
    for width, size in ((".128", 16), (".64", 8), (".U8", 1), (".S8", 1), (".U16", 2), (".S16", 2)):
        if width in i.opcode:
            return 32 * size
    return 32 * 4


def disassemble(nvdisasm, cubin):
    return parse(subprocess.run([nvdisasm, "-c", cubin], check=True, capture_output=True, text=True).stdout)


def parse(listing):
    kernels, kernel = [], None
    for line in listing.splitlines():
        if m := re.match(r"\.text\.(\w+):", line):
            kernel = Kernel(m[1])
            kernels.append(kernel)
        elif m := re.match(r"(\.L_x_\w+):", line):
            kernel.labels[m[1]] = len(kernel.code)
        elif m := re.match(r"\s+/\*[0-9a-f]+\*/\s+(?:\{\s*)?(@!?U?P\w+\s+)?([A-Z][\w.]*)(.*?);", line):
            guard, opcode, operands = m[1], m[2], m[3]
            label = re.search(r"`\((\.L_x_\w+)\)", operands) if opcode.startswith(("BRA", "BSSY")) else None
            # BRA !P4, `(…) has a condition among its operands.
            conditional = guard is not None or re.match(r"\s*!?U?P\d", operands) is not None
            kernel.code.append(Instruction(opcode, (opcode + operands).strip(), label[1] if label else "", conditional))
    return kernels


def busy(kernel, loop, arch):
    """Cycles that each pipe and the issue slot are busy with all instructions of the loop, for one warp."""
    return cycles_of(kernel.code[loop.begin:loop.end + 1], arch)


def cycles_of(code, arch):
    cycles = collections.Counter()
    for i in code:
        pipe, c = cost(i, arch)
        cycles[pipe] += c
        cycles["issue"] += 1
    del cycles["control"]
    return cycles
