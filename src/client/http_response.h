// HttpResponse: one HTTP/1.1 response, cut anywhere, to its status and body. Small on purpose: what
// the load generator needs of HTTP, without a library on the path that it measures. Others take it
// from here. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace deltad::client {

class HttpResponse {
 public:
  // Appends the body's part of these bytes to *body. An error if they are not HTTP, or go on after
  // the response has ended.
  Status push(std::string_view bytes, std::string* body);
  // The server has closed the connection: an error if the response was not whole.
  Status closed();

  bool begun() const { return begun_; }
  bool head_done() const { return state_ > State::kHeader; }
  bool complete() const { return state_ == State::kComplete; }
  int status() const { return status_; }
  bool keep_alive() const { return keep_alive_ && length_known_; }

 private:
  enum class State {
    kStatusLine,
    kHeader,
    kLength,  // remaining_ bytes of body
    kChunkSize,
    kChunk,     // remaining_ bytes of a chunk
    kChunkEnd,  // the line end after a chunk
    kTrailer,
    kUntilClose,
    kComplete,
  };
  Status take_line(std::string_view line);
  Status take_status_line(std::string_view line);
  Status take_header(std::string_view line);
  Status take_chunk_size(std::string_view line);
  void head_ended();

  State state_ = State::kStatusLine;
  bool begun_ = false;
  std::string line_;  // of which the end has not come
  size_t head_bytes_ = 0;
  int status_ = 0;
  bool keep_alive_ = true, chunked_ = false, length_known_ = false;
  uint64_t remaining_ = 0;
};

}  // namespace deltad::client
