#include "server/observe/trace_context.h"

#include <cmath>
#include <cstddef>
#include <random>

namespace deltad {
namespace {

constexpr size_t kLongestState = 512;  // what W3C wants passed on at least
// version-trace-span-flags.
constexpr size_t kTraceAt = 3, kSpanAt = 36, kFlagsAt = 53, kLength = 55;

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

template <size_t n>
bool read_hex(std::string_view text, std::array<uint8_t, n>* out) {
  for (size_t i = 0; i < n; ++i) {
    const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    (*out)[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return true;
}

template <size_t n>
std::string write_hex(const std::array<uint8_t, n>& id) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const uint8_t byte : id) (out += kDigits[byte >> 4]) += kDigits[byte & 15];
  return out;
}

template <size_t n>
std::array<uint8_t, n> random_bytes() {
  thread_local std::mt19937_64 engine = [] {
    std::random_device device;
    std::seed_seq seeds{device(), device(), device(), device()};
    return std::mt19937_64(seeds);
  }();
  std::array<uint8_t, n> out{};
  do {
    for (uint8_t& byte : out) byte = static_cast<uint8_t>(engine());
  } while (out == std::array<uint8_t, n>{});
  return out;
}

bool printable(std::string_view text) {
  for (const char c : text)
    if (c < ' ' || c > '~') return false;
  return true;
}

}  // namespace

std::optional<TraceContext> TraceContext::parse(const TraceHeaders& headers) {
  const std::string_view text = headers.traceparent;
  if (text.size() < kLength) return std::nullopt;
  std::array<uint8_t, 1> version{}, flags{};
  TraceContext out;
  if (!read_hex(text, &version) || !read_hex(text.substr(kTraceAt), &out.trace) ||
      !read_hex(text.substr(kSpanAt), &out.span) || !read_hex(text.substr(kFlagsAt), &flags))
    return std::nullopt;
  if (text[kTraceAt - 1] != '-' || text[kSpanAt - 1] != '-' || text[kFlagsAt - 1] != '-')
    return std::nullopt;
  // A later version may go on behind another dash.
  const bool rest = text.size() > kLength;
  if (version[0] == 0xff || (rest && (version[0] == 0 || text[kLength] != '-')))
    return std::nullopt;
  if (out.trace == TraceId{} || out.span == SpanId{}) return std::nullopt;
  out.sampled = (flags[0] & 1) != 0;
  if (headers.tracestate.size() <= kLongestState && printable(headers.tracestate))
    out.state = headers.tracestate;
  return out;
}

std::string hex_of(const TraceId& id) { return write_hex(id); }
std::string hex_of(const SpanId& id) { return write_hex(id); }

TraceId random_trace_id() { return random_bytes<16>(); }
SpanId random_span_id() { return random_bytes<8>(); }

bool sampled_by_ratio(const TraceId& id, double ratio) {
  uint64_t low = 0;  // the part that is random whoever made the id
  for (size_t i = 8; i < id.size(); ++i) low = low << 8 | id[i];
  return static_cast<double>(low) < ratio * std::ldexp(1.0, 64);
}

}  // namespace deltad
