// SplitRegex: see split_regex.h.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/split_regex.h"

#include <fmt/core.h>
#include <pcre2.h>

#include <chrono>
#include <optional>

#include "io/quote.h"
#include "text/utf8.h"

namespace deltad {
namespace {

constexpr size_t kMaxPattern = 64 << 10;
constexpr uint32_t kMatchLimit = 10'000'000;    // backtracks in one match
constexpr int kMatchesBetweenClockReads = 256;  // so that the clock costs nothing
constexpr auto kPatience = std::chrono::seconds(2);
constexpr auto kPatiencePerByte = std::chrono::microseconds(1);

// What a thread needs to match; PCRE2 wants it not shared.
struct Scratch {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, 8 << 20, nullptr);

  Scratch() {
    CHECK(data != nullptr && context != nullptr && stack != nullptr, "no memory to match with");
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Scratch() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
};

}  // namespace

void SplitRegex::Free::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

Result<SplitRegex> SplitRegex::compile(std::string_view pattern) {
  if (pattern.size() > kMaxPattern) {
    return invalid_argument(fmt::format("a regular expression of {} bytes, at most {} are allowed",
                                        pattern.size(), kMaxPattern));
  }
  ASSIGN_OR_RETURN(std::string translated, to_pcre2(pattern));
  std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  CHECK(context != nullptr, "no memory to compile with");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  // Anchored: every position is tried by find_all, and matching needs no search in front.
  uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED | PCRE2_MULTILINE |
                     PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_UTF_CHECK;
  int error = 0;
  PCRE2_SIZE offset = 0;
  SplitRegex regex;
  regex.code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()),
                                  translated.size(), options, &error, &offset, context.get()));
  if (regex.code_ == nullptr) {
    PCRE2_UCHAR text[256];
    pcre2_get_error_message(error, text, sizeof text);
    return invalid_argument(fmt::format("bad regular expression {}: {}", quoted_name(pattern),
                                        reinterpret_cast<const char*>(text)));
  }
  regex.jit_ = pcre2_jit_compile(regex.code_.get(), PCRE2_JIT_COMPLETE) == 0;
  return regex;
}

void SplitRegex::find_all(std::string_view text, std::vector<TextSpan>& matches) const {
  thread_local Scratch scratch;
  const PCRE2_SIZE* span = pcre2_get_ovector_pointer(scratch.data);
  auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  auto match = jit_ ? &pcre2_jit_match : &pcre2_match;
  std::optional<std::chrono::steady_clock::time_point> deadline;
  int until_clock = kMatchesBetweenClockReads;
  size_t at = 0;
  std::optional<size_t> last_end;
  while (at <= text.size()) {
    if (--until_clock == 0) {
      auto now = std::chrono::steady_clock::now();
      if (!deadline) deadline = now + kPatience + kPatiencePerByte * text.size();
      if (now > *deadline) return;
      until_clock = kMatchesBetweenClockReads;
    }
    int found = match(code_.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK, scratch.data,
                      scratch.context);
    if (found < 0 && found != PCRE2_ERROR_NOMATCH) return;  // a limit
    // An empty match directly behind a match does not count, or there would be no end.
    if (found < 0 || (span[0] == span[1] && last_end == span[1])) {
      if (at == text.size()) return;
      next_char(text, at);
      continue;
    }
    matches.push_back({span[0], span[1]});
    at = span[1];
    last_end = at;
  }
}

}  // namespace deltad
