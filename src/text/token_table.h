// TokenTable: strings with ids, looked up both ways. The strings lie in one block, so that a
// vocabulary of 100,000 costs a few megabytes. Filled once, then read by any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace deltad {

class TokenTable {
 public:
  // Room for ids below `ids`.
  explicit TokenTable(size_t ids);

  // Gives the id its text. A text that is there already keeps the id that find() gives; an id that
  // has a text already is refused (false).
  bool add(std::string_view text, int32_t id);
  bool has(int32_t id) const;
  std::string_view text(int32_t id) const;    // "" if it has none
  int32_t find(std::string_view text) const;  // -1 if none
  size_t ids() const { return spans_.size(); }

 private:
  struct Span {
    uint32_t begin = 0;
    uint32_t length = kNone;
  };
  static constexpr uint32_t kNone = UINT32_MAX;

  size_t slot(std::string_view text) const;
  void grow();

  std::string block_;
  std::vector<Span> spans_;     // by id
  std::vector<int32_t> slots_;  // open addressing, a power of two, at most half full; -1 is free
  size_t used_ = 0;
};

}  // namespace deltad
