"""What ptxas says of each kernel (build/…/cuda/ARCH/FILE.resources), and the occupancy that follows."""
import dataclasses
import pathlib
import re

# Of a multiprocessor: registers, bytes of shared memory, threads, blocks. CUDA C++ Programming Guide, "Compute Capabilities";
# a block costs 1 KiB of shared memory beside its own.
LIMITS = {
    "sm_80": (65536, 164 * 1024, 2048, 32),
    "sm_90a": (65536, 228 * 1024, 2048, 32),
    "sm_100": (65536, 228 * 1024, 2048, 32),
}


@dataclasses.dataclass
class Resources:
    kernel: str
    arch: str
    file: str
    registers: int
    spilled: int  # bytes stored and loaded
    stack: int
    shared: int  # static


def read(folder):
    """All kernels of all architectures below build/…/cuda."""
    found = []
    for path in sorted(pathlib.Path(folder).glob("*/*.resources")):
        blocks = re.split(r"Compiling entry function '(\w+)' for '(\w+)'", path.read_text())
        for kernel, arch, text in zip(blocks[1::3], blocks[2::3], blocks[3::3]):
            stack, stores, loads = map(int, re.search(
                r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", text).groups())
            shared = re.search(r"(\d+) bytes smem", text)
            found.append(Resources(kernel, arch, path.stem, int(re.search(r"Used (\d+) registers", text).group(1)),
                                   stores + loads, stack, int(shared.group(1)) if shared else 0))
    if not found:
        raise SystemExit(f"no *.resources below {folder}: build target cuda_kernels first")
    return found


def blocks_resident(r, threads, dynamic_shared):
    """Blocks of `threads` threads that a multiprocessor holds, and what limits them."""
    registers, shared, most_threads, most_blocks = LIMITS[r.arch]
    of_warp = (r.registers * 32 + 255) // 256 * 256
    fits = {
        "registers": registers // (of_warp * (threads // 32)),
        "shared memory": shared // (r.shared + dynamic_shared + 1024),
        "threads": most_threads // threads,
        "blocks": most_blocks,
    }
    limit = min(fits, key=fits.get)
    return fits[limit], limit
