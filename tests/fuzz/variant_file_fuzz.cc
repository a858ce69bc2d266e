// Any bytes as a variant file: opened, checked against a small model's weights, and read whole.
// Nothing may crash, hang or allocate beyond the file's size.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "delta/delta_reader.h"

namespace {

const deltad::WeightTable& small_table() {
  static const deltad::WeightTable table = [] {
    deltad::ModelConfig config;
    config.hidden = 8;
    config.layers = 1;
    config.heads = 2;
    config.kv_heads = 1;
    config.head_dim = 4;
    config.intermediate = 12;
    config.vocab = 16;
    config.tied_head = true;
    return deltad::make_weight_table(config);
  }();
  return table;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int fd = memfd_create("variant", 0);
  if (fd < 0) return 0;
  if (write(fd, data, size) == static_cast<ssize_t>(size)) {
    const auto delta = deltad::DeltaFile::open("/proc/self/fd/" + std::to_string(fd));
    if (delta.ok()) {
      (void)delta->head_source(true);
      (void)delta->check_base("LlamaForCausalLM", "");
      deltad::DeltaReadOptions options;
      (void)deltad::read_delta(*delta, options);
      if (delta->check_shapes(small_table()).ok()) {
        options.table = &small_table();
        (void)deltad::read_delta(*delta, options);
      }
    }
  }
  close(fd);
  return 0;
}
