// GgufWriter: the bytes of a small GGUF file, right or wrong, for tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace deltad::testing {

class GgufWriter {
 public:
  // Metadata; a key that is there already is replaced.
  void raw(const std::string& key, uint32_t type, const std::string& value) {
    remove(key);
    entries_.emplace_back(key, number(type) + value);
  }
  void u32(const std::string& key, uint32_t value) { raw(key, 4, number(value)); }
  void i32(const std::string& key, int32_t value) { raw(key, 5, number(value)); }
  void f32(const std::string& key, float value) { raw(key, 6, number(value)); }
  void string(const std::string& key, const std::string& value) { raw(key, 8, text(value)); }
  void list(const std::string& key, uint32_t type, uint64_t count, const std::string& elements) {
    raw(key, 9, number(type) + number(count) + elements);
  }
  // sizes: innermost first, as in the file. Placed behind the tensors before it.
  void tensor(const std::string& name, const std::vector<uint64_t>& sizes, uint32_t type,
              const std::string& data) {
    tensor_at(name, sizes, type, aligned(data_.size()));
    data_.resize(aligned(data_.size()));
    data_ += data;
  }
  // Only the description.
  void tensor_at(const std::string& name, const std::vector<uint64_t>& sizes, uint32_t type,
                 uint64_t offset) {
    std::string info = number(static_cast<uint32_t>(sizes.size()));
    for (uint64_t size : sizes) info += number(size);
    tensors_.emplace_back(name, info + number(type) + number(offset));
  }
  void remove(const std::string& name) {
    for (auto* list : {&entries_, &tensors_})
      list->erase(std::remove_if(list->begin(), list->end(),
                                 [&](const auto& entry) { return entry.first == name; }),
                  list->end());
  }
  // Writes one more copy of this entry or tensor.
  void repeat(const std::string& name) {
    for (auto* list : {&entries_, &tensors_})
      for (size_t i = 0, n = list->size(); i < n; ++i)
        if ((*list)[i].first == name) list->push_back((*list)[i]);
  }

  std::string header() const {
    std::string out = "GGUF" + number(uint32_t{3}) + number(uint64_t{tensors_.size()}) +
                      number(uint64_t{entries_.size()});
    for (const auto& [key, value] : entries_) out += text(key) + value;
    for (const auto& [name, info] : tensors_) out += text(name) + info;
    return out;
  }
  std::string bytes() const {
    std::string out = header();
    out.resize(aligned(out.size()));
    return out + data_;
  }

  template <typename T>
  static std::string number(T value) {
    std::string out(sizeof(T), '\0');
    std::memcpy(out.data(), &value, sizeof(T));
    return out;
  }
  static std::string text(const std::string& value) {
    return number(uint64_t{value.size()}) + value;
  }

 private:
  static size_t aligned(size_t at) { return (at + 31) / 32 * 32; }
  std::vector<std::pair<std::string, std::string>> entries_, tensors_;
  std::string data_;
};

}  // namespace deltad::testing
