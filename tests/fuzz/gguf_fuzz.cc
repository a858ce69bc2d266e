// Any bytes as a GGUF file: an error, or a file whose tensors can be read, and maybe a model.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "io/gguf.h"
#include "model/gguf_checkpoint.h"
#include "model/loader.h"
#include "model/weight_table.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deltad;
  auto file = GgufFile::parse(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz");
  if (!file.ok()) return 0;
  for (const auto& [name, tensor] : (*file)->tensors()) {
    if (gguf_block(tensor.type) == nullptr) continue;
    if (tensor.bytes > static_cast<int64_t>(size)) abort();
    std::vector<float> out(static_cast<size_t>(tensor.rows() * tensor.columns()));
    const Status status = (*file)->read_rows_f32(tensor, 0, tensor.rows(), out.data());
    if (!status.ok() && status.code() != Code::kUnimplemented) abort();
  }
  const auto model = make_gguf_checkpoint(std::move(*file));
  if (!model.ok()) return 0;
  for (const auto& [name, tensor] : (*model)->tensors()) {
    // The last rows alone, which of q and k are parts of a head.
    const int64_t columns = tensor.shape.rank() == 2 ? tensor.shape[1] : 1;
    const int64_t count = std::min<int64_t>(tensor.shape[0], 5);
    std::vector<uint16_t> out(static_cast<size_t>(count * columns));
    if (!(*model)->read_rows_bf16(name, tensor.shape[0] - count, count, out.data()).ok()) abort();
  }
  if (!base_digest(**model).ok()) abort();
  const Status fits = check_tensors(**model, make_weight_table((*model)->config()));
  if (!fits.ok() && fits.message().empty()) abort();
  return 0;
}
