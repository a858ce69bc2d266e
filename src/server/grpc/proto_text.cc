#include "server/grpc/proto_text.h"

#include <utility>

#include "text/utf8.h"

namespace deltad {

std::string valid_utf8(std::string text) {
  if (is_utf8(text)) return text;
  std::string out;
  append_repaired(out, text);
  return out;
}

}  // namespace deltad
