// head_check: what is wrong with the head of a request (request line and headers), asked of the raw
// bytes before they are parsed. A proxy before this server and this server must not read the same
// bytes as different requests (request smuggling), so whatever RFC 9112 leaves to a recipient's
// kindness is refused. Pure.
#pragma once

#include <string_view>

namespace deltad {

// Whether bytes that have come so far cannot begin a request; null: they can. Bytes before `from`
// have been looked at.
const char* early_error(std::string_view bytes, size_t from);

// head: up to and with the empty line. Null: nothing is wrong. Says nothing of the bytes
// themselves.
const char* head_error(std::string_view head);

}  // namespace deltad
