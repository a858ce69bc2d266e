#include "client/http_response.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace deltad::client {
namespace {

constexpr size_t kMostHeadBytes = 64 << 10;

bool same(std::string_view a, std::string_view lower) {
  return std::equal(a.begin(), a.end(), lower.begin(), lower.end(), [](char x, char y) {
    return (x >= 'A' && x <= 'Z' ? static_cast<char>(x - 'A' + 'a') : x) == y;
  });
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

bool parse_number(std::string_view text, int base, uint64_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value, base);
  return error == std::errc() && end == text.data() + text.size();
}

Status not_http(std::string_view what, std::string_view line) {
  return invalid_argument(fmt::format("not an HTTP/1.1 response: {} \"{}\"", what,
                                      line.substr(0, std::min<size_t>(line.size(), 60))));
}

}  // namespace

Status HttpResponse::push(std::string_view bytes, std::string* body) {
  begun_ = begun_ || !bytes.empty();
  while (!bytes.empty()) {
    switch (state_) {
      case State::kComplete:
        return invalid_argument("the server sent more than its response");
      case State::kUntilClose:
        body->append(bytes);
        return Status();
      case State::kLength:
      case State::kChunk: {
        const size_t n = std::min<uint64_t>(remaining_, bytes.size());
        body->append(bytes.substr(0, n));
        bytes.remove_prefix(n);
        remaining_ -= n;
        if (remaining_ == 0)
          state_ = state_ == State::kLength ? State::kComplete : State::kChunkEnd;
        break;
      }
      default: {
        const size_t newline = bytes.find('\n');
        const std::string_view part = bytes.substr(0, newline);
        head_bytes_ += part.size();
        if (line_.size() + part.size() > kMostHeadBytes || head_bytes_ > kMostHeadBytes) {
          return invalid_argument("not an HTTP/1.1 response: its head has more than 64 KiB");
        }
        line_ += part;
        if (newline == std::string_view::npos) return Status();
        bytes.remove_prefix(newline + 1);
        std::string line = std::exchange(line_, {});
        if (!line.empty() && line.back() == '\r') line.pop_back();
        RETURN_IF_ERROR(take_line(line));
      }
    }
  }
  return Status();
}

Status HttpResponse::take_line(std::string_view line) {
  switch (state_) {
    case State::kStatusLine:
      return take_status_line(line);
    case State::kHeader:
      return take_header(line);
    case State::kChunkSize:
      return take_chunk_size(line);
    case State::kChunkEnd:
      if (!line.empty()) return not_http("a chunk is longer than its size says:", line);
      state_ = State::kChunkSize;
      return Status();
    default:  // a trailer: of no use
      if (line.empty()) state_ = State::kComplete;
      return Status();
  }
}

Status HttpResponse::take_status_line(std::string_view line) {
  uint64_t status = 0;
  if (line.size() < 12 || line.substr(0, 7) != "HTTP/1." || line[8] != ' ' ||
      !parse_number(line.substr(9, 3), 10, &status) || status < 100 ||
      (line.size() > 12 && line[12] != ' ')) {
    return not_http("a status line was expected, got", line);
  }
  status_ = static_cast<int>(status);
  keep_alive_ = line[7] == '1';
  state_ = State::kHeader;
  return Status();
}

Status HttpResponse::take_header(std::string_view line) {
  if (line.empty()) {
    head_ended();
    return Status();
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0)
    return not_http("a header was expected, got", line);
  const std::string_view name = line.substr(0, colon), value = trimmed(line.substr(colon + 1));
  if (same(name, "content-length")) {
    if (!parse_number(value, 10, &remaining_)) return not_http("Content-Length is", value);
    length_known_ = true;
  } else if (same(name, "transfer-encoding")) {
    if (!same(value, "chunked")) return not_http("Transfer-Encoding is", value);
    chunked_ = true;
  } else if (same(name, "connection")) {
    if (same(value, "close")) keep_alive_ = false;
    if (same(value, "keep-alive")) keep_alive_ = true;
  }
  return Status();
}

void HttpResponse::head_ended() {
  if (status_ < 200) {  // 100 Continue and the like: the response comes after it
    *this = HttpResponse();
    begun_ = true;
    return;
  }
  head_bytes_ = 0;
  if (status_ == 204 || status_ == 304) {
    state_ = State::kComplete;
    length_known_ = true;
  } else if (chunked_) {
    state_ = State::kChunkSize;
    length_known_ = true;
  } else if (length_known_) {
    state_ = remaining_ == 0 ? State::kComplete : State::kLength;
  } else {
    state_ = State::kUntilClose;
  }
}

Status HttpResponse::take_chunk_size(std::string_view line) {
  head_bytes_ = 0;
  const std::string_view digits = trimmed(line.substr(0, line.find(';')));
  if (digits.empty() || !parse_number(digits, 16, &remaining_)) {
    return not_http("a chunk's size was expected, got", line);
  }
  state_ = remaining_ == 0 ? State::kTrailer : State::kChunk;
  return Status();
}

Status HttpResponse::closed() {
  if (state_ == State::kUntilClose) state_ = State::kComplete;
  if (complete()) return Status();
  return unavailable(begun_ ? "the server closed the connection before the answer had ended"
                            : "the server closed the connection without an answer");
}

}  // namespace deltad::client
