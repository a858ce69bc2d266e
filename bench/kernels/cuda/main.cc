// Speed of the CUDA kernels on a card, each line's result checked against fp64 first.
//   bench_cuda [--quick]     --quick: tiny sizes, to see that all of it works
#include <cstdio>
#include <cstring>

#include "bench/kernels/cuda/bench.h"

int main(int argc, char** argv) {
  using namespace deltad::bench;
  const bool quick = argc == 2 && std::strcmp(argv[1], "--quick") == 0;
  if (argc > 1 && !quick) fail("expected no argument, or --quick");
  Card card(quick);
  const double rate = copy_rate(card);
  std::printf("%s\n\n| copy | GB/s |\n|---|---|\n| within memory, read and written | %.1f |\n\n",
              card.device().name().c_str(), rate / 1e9);
  bench_linear_decode(card, rate);
  std::printf("\n");
  bench_linear_prefill(card);
  std::printf("\n");
  bench_attention_decode(card, rate);
  return 0;
}
