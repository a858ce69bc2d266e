// GenerationSink: where a generation's answer goes, whatever the protocol: whole, or piece by
// piece. Also what the generation needs of the request's call: its line of work, its id, and
// whether the client has left. Everything but post() is called on the line of work.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "server/generation/choice_stream.h"
#include "server/metrics.h"
#include "server/observe/request_record.h"
#include "server/openai/errors.h"

namespace deltad {

struct Usage {
  int64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
};

struct WholeChoice {
  Piece piece;  // begins with what of the prompt is repeated
  const char* finish_reason = "stop";
  const std::vector<int32_t>* prompt_ids = nullptr;
};

class GenerationSink {
 public:
  virtual ~GenerationSink() = default;

  // Runs work soon, never inside this call and never beside other work of the same request. Any
  // thread.
  virtual void post(std::function<void()> work) = 0;
  // Called (like posted work) at most once, if the client leaves before the answer is complete.
  virtual void on_disconnect(std::function<void()> callback) = 0;

  virtual RequestRecord& record() = 0;

  // Of a stream. A choice begins before its first piece; echo: what of the prompt is repeated. at:
  // when the piece's last token came.
  virtual void begin_choice(int32_t index, const Piece& echo,
                            const std::vector<int32_t>& prompt_ids) = 0;
  virtual void piece(int32_t index, const Piece& piece, TimePoint at) = 0;
  virtual void end_choice(int32_t index, const char* finish_reason) = 0;
  virtual void end_stream(const Usage& usage) = 0;

  virtual void whole(const std::vector<WholeChoice>& choices, const Usage& usage) = 0;

  // The last word: an error, also in the middle of a stream; or nobody listens any more.
  virtual void fail(const ApiError& error) = 0;
  virtual void client_gone() = 0;
};

}  // namespace deltad
