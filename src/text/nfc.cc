// NFC as the `tokenizers` library has it: decompose, order the marks, compose. Its tables are those
// of Unicode 10: marks that came later have no class (they are not ordered), composites that came
// later are not composed. utf8proc gives the mappings; the ordering is ours, because utf8proc's
// takes quadratic time over a long run of marks.
#include <utf8proc.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "text/unicode.h"
#include "text/utf8.h"

namespace deltad {
namespace {

struct Range {
  char32_t first, last;
};
constexpr Range kLaterMarks[] = {
    {0x7FD, 0x7FD},     {0x897, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},
    {0xC3C, 0xC3C},     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0xECE, 0xECE},
    {0x1715, 0x1715},   {0x1ABF, 0x1AFF},   {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},
    {0x10D24, 0x10D27}, {0x10D69, 0x10D6D}, {0x10EAB, 0x10EFF}, {0x10F46, 0x10F50},
    {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x11241, 0x11241}, {0x1133B, 0x1133B},
    {0x11380, 0x113FF}, {0x1145E, 0x1145E}, {0x11839, 0x1183A}, {0x1193D, 0x11943},
    {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99},
    {0x11D42, 0x11D45}, {0x11D97, 0x11D97}, {0x11F00, 0x11F5F}, {0x16100, 0x1613F},
    {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE},
    {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}, {0x1E5EE, 0x1E5EF}, {0x1E6E0, 0x1E6FF},
};
constexpr Range kLaterComposites[] = {
    {0x105C9, 0x105C9}, {0x105E4, 0x105E4}, {0x11383, 0x113C8},
    {0x11938, 0x11938}, {0x16121, 0x16128}, {0x16D68, 0x16D6A},
};

template <size_t N>
bool in(const Range (&ranges)[N], char32_t c) {
  return std::any_of(std::begin(ranges), std::end(ranges),
                     [&](const Range& r) { return c >= r.first && c <= r.last; });
}

struct Mark {
  utf8proc_int32_t c;
  int combining_class;  // 0: a starter
};

int combining_class(char32_t c) {
  if (c < 0x300) return 0;
  int value = utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
  return value != 0 && in(kLaterMarks, c) ? 0 : value;
}

// The canonical composite of two characters, or 0.
utf8proc_int32_t composite(utf8proc_int32_t first, utf8proc_int32_t second) {
  if (second < 0x300) return 0;
  utf8proc_int32_t pair[3] = {first, second, 0};  // utf8proc wants room for an end mark
  auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  if (utf8proc_normalize_utf32(pair, 2, options) != 1) return 0;
  return in(kLaterComposites, static_cast<char32_t>(pair[0])) ? 0 : pair[0];
}

void append_decomposed(std::vector<Mark>& out, char32_t c) {
  utf8proc_int32_t parts[8];
  int boundary = 0;
  utf8proc_ssize_t count = 1;
  parts[0] = static_cast<utf8proc_int32_t>(c);
  if (c >= 0xC0 && !in(kLaterComposites, c)) {
    auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
    count = utf8proc_decompose_char(parts[0], parts, 8, options, &boundary);
  }
  for (utf8proc_ssize_t i = 0; i < count && i < 8; ++i) {
    out.push_back({parts[i], combining_class(static_cast<char32_t>(parts[i]))});
  }
}

void order_marks(std::vector<Mark>& marks) {
  for (auto begin = marks.begin(); begin != marks.end();) {
    if (begin->combining_class == 0) {
      ++begin;
      continue;
    }
    auto end = std::find_if(begin, marks.end(), [](const Mark& m) { return !m.combining_class; });
    std::stable_sort(begin, end, [](const Mark& a, const Mark& b) {
      return a.combining_class < b.combining_class;
    });
    begin = end;
  }
}

void compose(std::vector<Mark>& marks) {
  size_t kept = 0;
  size_t starter = SIZE_MAX;  // index of the last starter kept
  int last = 0;               // class of what was kept last behind it; 0 directly behind
  for (size_t i = 0; i < marks.size(); ++i) {
    Mark mark = marks[i];
    bool adjacent = starter != SIZE_MAX && kept == starter + 1;
    if (starter != SIZE_MAX && (adjacent || last < mark.combining_class)) {
      if (utf8proc_int32_t made = composite(marks[starter].c, mark.c)) {
        marks[starter].c = made;
        continue;
      }
    }
    if (mark.combining_class == 0) starter = kept;
    last = mark.combining_class;
    marks[kept++] = mark;
  }
  marks.resize(kept);
}

}  // namespace

std::string nfc(std::string_view text) {
  bool composed = true;  // below U+0300 everything is
  for (size_t at = 0; at < text.size() && composed;) composed = next_char(text, at) < 0x300;
  if (composed) return std::string(text);
  std::vector<Mark> marks;
  marks.reserve(text.size());
  for (size_t at = 0; at < text.size();) append_decomposed(marks, next_char(text, at));
  order_marks(marks);
  compose(marks);
  std::string out;
  out.reserve(text.size());
  for (const Mark& mark : marks) append_char(out, static_cast<char32_t>(mark.c));
  return out;
}

}  // namespace deltad
