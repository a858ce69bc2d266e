// Speed of serving on a card, with random weights of an 8-billion-parameter model's shapes and
// fourteen one-level variants: 30 GB of the card's memory in all.
//   bench_cuda_serving serve|loads [--quick] [--folder DIR]
// serve: the base, one variant and all of them, through the engine. loads: a variant from a cold
// disk and from the page cache, of a file that is made in DIR (default: .). --quick: a tiny model,
// to see that all of it works.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "bench/serving/cuda/serve.h"

namespace {

[[noreturn]] void fail(const std::string& message) {
  std::fprintf(stderr, "bench_cuda_serving: %s\n", message.c_str());
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what != "serve" && what != "loads") fail("expected serve or loads");
  bool quick = false;
  std::string folder = ".";
  for (int i = 2; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--quick")
      quick = true;
    else if (flag == "--folder" && i + 1 < argc)
      folder = argv[++i];
    else
      fail(flag + ": expected --quick or --folder DIR");
  }
  const bool serve = what == "serve";
  const auto model = deltad::bench::make_synthetic_model(quick, serve ? (quick ? 3 : 14) : 0);
  if (!model.ok()) fail(std::string(model.status().message()));
  std::printf("%s; %.1f GB of base in %.1f s, a variant of %.2f GB in %.2f s\n\n",
              (*model)->backend->description().c_str(),
              static_cast<double>((*model)->backend->weight_bytes()) / 1e9, (*model)->base_seconds,
              serve ? static_cast<double>((*model)->variants[0]->bytes) / 1e9 : 0.0,
              (*model)->variant_seconds);
  const deltad::Status status = serve ? deltad::bench::bench_serving(**model, quick)
                                      : deltad::bench::bench_loads(**model, folder, quick);
  if (!status.ok()) fail(std::string(status.message()));
  return 0;
}
