#include "text/jinja/text_wrap.h"

#include <algorithm>
#include <deque>

#include "text/jinja/unicode.h"

namespace deltad::jinja {

namespace {

using Chars = std::u32string;

Chars decoded(std::string_view s) {
  Chars out;
  for (size_t at = 0; at < s.size();) out.push_back(utf8_next(s, &at));
  return out;
}

std::string encoded(const Chars& s) {
  std::string out;
  for (const char32_t c : s) utf8_append(&out, c);
  return out;
}

bool is_blank(char32_t c) { return c == ' ' || (c >= 0x09 && c <= 0x0d); }
bool is_word(char32_t c) { return c == '_' || is_alnum(c); }
bool is_letter(char32_t c) { return is_word(c) && !is_decimal(c); }
bool is_word_or_punctuation(char32_t c) {
  return is_word(c) || std::u32string_view(U"!\"'&.,?").find(c) != std::u32string_view::npos;
}
bool all_blank(const Chars& s) {
  return std::all_of(s.begin(), s.end(), [](char32_t c) { return is_space(c); });
}

// Splits text into words and the space between them; words also behind hyphens and around dashes.
class Chunker {
 public:
  explicit Chunker(const Chars& text) : s_(text) {}

  std::deque<Chars> run(bool hyphens) {
    std::deque<Chars> chunks;
    for (size_t at = 0; at < s_.size();) {
      size_t end = at;
      if (is_blank(s_[at])) {
        while (end < s_.size() && is_blank(s_[end])) ++end;
      } else if (!hyphens) {
        while (end < s_.size() && !is_blank(s_[end])) ++end;
      } else if (const size_t dash = dash_end(at); dash > at) {
        end = dash;
      } else {
        for (++end; end < s_.size() && !word_ends(at, end); ++end) {
          if (s_[end] == '-' && hyphen_splits(at, end)) {
            ++end;
            break;
          }
        }
      }
      chunks.push_back(s_.substr(at, end - at));
      at = end;
    }
    return chunks;
  }

 private:
  bool letter(size_t i) const { return i < s_.size() && is_letter(s_[i]); }

  // The end of a dash of two or more hyphens between words, that begins at `at`; else at.
  size_t dash_end(size_t at) const {
    if (at == 0 || !is_word_or_punctuation(s_[at - 1])) return at;
    size_t end = at;
    while (end < s_.size() && s_[end] == '-') ++end;
    return end - at >= 2 && end < s_.size() && is_word(s_[end]) ? end : at;
  }

  bool word_ends(size_t, size_t end) const { return is_blank(s_[end]) || dash_end(end) > end; }

  // Whether a word may be split behind the hyphen at i: two letters before it (or a letter, a
  // hyphen and a character), two letters, perhaps with a hyphen between, behind it.
  bool hyphen_splits(size_t start, size_t i) const {
    if (i == start) return false;
    const bool before =
        (i >= 2 && letter(i - 1) && letter(i - 2)) ||
        (i >= 3 && is_word_or_punctuation(s_[i - 1]) && s_[i - 2] == '-' && letter(i - 3));
    if (!before || !letter(i + 1)) return false;
    return letter(i + 2) || (i + 2 < s_.size() && s_[i + 2] == '-' && letter(i + 3));
  }

  const Chars& s_;
};

}  // namespace

std::vector<std::string> wrap_text(Render& render, std::string_view text, const WrapStyle& style) {
  if (style.width <= 0) fail("invalid width (must be > 0)");
  constexpr Int kFar = Int{1} << 40;
  const auto width = static_cast<size_t>(std::min(style.width, kFar));
  const Chars s = decoded(text);
  render.meter.step(static_cast<int64_t>(s.size() >> 4));
  std::deque<Chars> chunks = Chunker(s).run(style.break_on_hyphens);
  std::vector<std::string> lines;
  while (!chunks.empty()) {
    render.meter.step();
    Chars line;
    size_t last = 0;  // size of the chunk that was added last
    if (!lines.empty() && all_blank(chunks.front())) chunks.pop_front();
    while (!chunks.empty() && line.size() + chunks.front().size() <= width) {
      last = chunks.front().size();
      line += chunks.front();
      chunks.pop_front();
    }
    if (!chunks.empty() && chunks.front().size() > width) {
      const size_t space = width - line.size();
      if (style.break_long_words) {
        size_t end = width < 1 ? 1 : space;
        if (style.break_on_hyphens && chunks.front().size() > space && space > 0) {
          const size_t hyphen = chunks.front().rfind(U'-', space - 1);
          const bool more = hyphen != Chars::npos && hyphen > 0 &&
                            chunks.front().find_first_not_of(U'-') < hyphen;
          if (more) end = hyphen + 1;
        }
        if (end > 0) {
          last = end;
          line += chunks.front().substr(0, end);
          chunks.front().erase(0, end);
        }
      } else if (line.empty()) {
        last = chunks.front().size();
        line += chunks.front();
        chunks.pop_front();
      }
    }
    if (last > 0 && all_blank(line.substr(line.size() - last))) line.resize(line.size() - last);
    if (!line.empty()) lines.push_back(encoded(line));
  }
  return lines;
}

}  // namespace deltad::jinja
