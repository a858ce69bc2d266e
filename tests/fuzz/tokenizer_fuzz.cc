// libFuzzer: a tokenizer.json, and text for it behind the first zero byte. Whatever is accepted
// must encode and decode the text, and stream it as it decodes it.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace deltad;
  std::string_view input(reinterpret_cast<const char*>(data), size);
  size_t zero = input.find('\0');
  std::string_view text = zero == std::string_view::npos ? "a text" : input.substr(zero + 1);
  auto tokenizer = Tokenizer::from_json(input.substr(0, zero));
  if (!tokenizer.ok()) {
    CHECK(!tokenizer.status().message().empty(), "an error without a message");
    return 0;
  }
  for (bool parse_special : {false, true}) {
    std::vector<int32_t> ids =
        (*tokenizer)->encode(text, {.add_special = true, .parse_special = parse_special});
    StreamDecoder decoder(*tokenizer, {"ab", "b\n", std::string(text.substr(0, 3)) + "\x01"},
                          parse_special, false);
    std::string streamed;
    for (int32_t id : ids) streamed += decoder.push(id);
    streamed += decoder.finish();
    std::string whole = (*tokenizer)->decode(ids, parse_special);
    CHECK(decoder.stopped() ? whole.starts_with(streamed) : whole == streamed,
          "streamed and whole text differ");
  }
  return 0;
}
