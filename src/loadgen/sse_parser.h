// SseParser: a stream of server-sent events, cut anywhere, to the data of each event. One thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace deltad::loadgen {

class SseParser {
 public:
  using OnData = std::function<Status(std::string_view data)>;

  // Calls on_data for each event that ends within these bytes and has data; its first error is
  // returned, as is a line or event of more than 16 MiB.
  Status push(std::string_view bytes, const OnData& on_data);
  // The stream has ended: an error if it broke off inside an event.
  Status finish() const;

 private:
  Status take_line(std::string_view line, const OnData& on_data);

  std::string line_;  // of which the end has not come
  std::string data_;
  bool has_data_ = false;
  bool after_cr_ = false;  // a line feed that follows belongs to the line before
};

}  // namespace deltad::loadgen
