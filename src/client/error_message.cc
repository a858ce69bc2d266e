#include "client/error_message.h"

#include <algorithm>

namespace deltad::client {

std::string error_message(simdjson::dom::parser& parser, std::string_view body) {
  simdjson::dom::element document;
  std::string_view message;
  if (parser.parse(body.data(), body.size()).get(document) == simdjson::SUCCESS) {
    if (document["error"]["message"].get(message) == simdjson::SUCCESS ||
        document["error"].get(message) == simdjson::SUCCESS ||
        document["message"].get(message) == simdjson::SUCCESS) {
      return std::string(message);
    }
  }
  return std::string(body.substr(0, std::min<size_t>(body.size(), 200)));
}

}  // namespace deltad::client
