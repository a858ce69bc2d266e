// UTF-8: see utf8.h.
#include "text/utf8.h"

#include <simdjson.h>

#include <algorithm>

namespace deltad {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

bool continues(unsigned char byte) { return (byte & 0xC0) == 0x80; }

}  // namespace

Utf8Unit utf8_unit(std::string_view bytes) {
  auto lead = static_cast<unsigned char>(bytes[0]);
  if (lead < 0x80) return {1, true, false};
  size_t length = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
  if (length == 0) return {1, false, false};
  if (bytes.size() < 2) return {1, false, true};
  // The second byte's range excludes overlong forms, surrogates and what is above U+10FFFF.
  auto second = static_cast<unsigned char>(bytes[1]);
  unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (second < low || second > high) return {1, false, false};
  for (size_t i = 2; i < length; ++i) {
    if (i == bytes.size()) return {i, false, true};
    if (!continues(static_cast<unsigned char>(bytes[i]))) return {i, false, false};
  }
  return {length, true, false};
}

bool is_utf8(std::string_view bytes) { return simdjson::validate_utf8(bytes.data(), bytes.size()); }

void append_repaired(std::string& out, std::string_view bytes) {
  if (is_utf8(bytes)) {
    out += bytes;
    return;
  }
  for (size_t at = 0; at < bytes.size();) {
    Utf8Unit unit = utf8_unit(bytes.substr(at));
    out += unit.valid ? bytes.substr(at, unit.length) : kReplacement;
    at += unit.length;
  }
}

size_t utf8_certain_prefix(std::string_view bytes) {
  // An unfinished character has at most three bytes, and begins with the last byte that is no
  // continuation.
  for (size_t back = 1; back <= std::min<size_t>(3, bytes.size()); ++back) {
    size_t at = bytes.size() - back;
    if (continues(static_cast<unsigned char>(bytes[at]))) continue;
    return utf8_unit(bytes.substr(at)).truncated ? at : bytes.size();
  }
  return bytes.size();
}

char32_t next_char(std::string_view text, size_t& at) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  char32_t lead = byte(at);
  if (lead < 0x80) return ++at, lead;
  if (lead < 0xE0) {
    at += 2;
    return (lead & 0x1F) << 6 | (byte(at - 1) & 0x3F);
  }
  if (lead < 0xF0) {
    at += 3;
    return (lead & 0x0F) << 12 | (byte(at - 2) & 0x3F) << 6 | (byte(at - 1) & 0x3F);
  }
  at += 4;
  return (lead & 0x07) << 18 | (byte(at - 3) & 0x3F) << 12 | (byte(at - 2) & 0x3F) << 6 |
         (byte(at - 1) & 0x3F);
}

size_t previous_char(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && continues(static_cast<unsigned char>(text[at]))) --at;
  return at;
}

void append_char(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

}  // namespace deltad
