// ChatTemplate: a Jinja template compiled once and rendered for each request, in the environment
// that the hub's libraries use for chat templates (trim_blocks, lstrip_blocks, loop controls,
// tojson without HTML escapes, raise_exception, strftime_now), sandboxed and bounded in steps,
// depth and output. Immutable; any thread may render.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/template_limits.h"

namespace deltad {

class ChatTemplate {
 public:
  // kInvalidArgument: "line N: …" for a syntax error.
  static Result<std::shared_ptr<const ChatTemplate>> compile(std::string_view source,
                                                             const TemplateLimits& limits = {});
  virtual ~ChatTemplate() = default;
  // variables: an object (messages, tools, add_generation_prompt, bos_token, …); order of keys is
  // kept. now: unix seconds for strftime_now (local time is UTC). kInvalidArgument: "line N: …";
  // for raise_exception the message is what the template gave, after "line N: ".
  virtual Result<std::string> render(const nlohmann::ordered_json& variables,
                                     int64_t now) const = 0;
};

}  // namespace deltad
