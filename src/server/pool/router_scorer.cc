#include "server/pool/router_scorer.h"

#include <fmt/core.h>

#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "text/stream_decoder.h"

namespace deltad {

// One score at work. Events come on the engine's thread; all state is under the scorer's mutex.
class RouterScorer::Asking {
 public:
  Asking(RouterScorer& scorer, const ModelHandle& model, const std::vector<Question>& questions)
      : scorer_(scorer), model_(model), questions_(questions), answers_(questions.size()) {
    for (size_t i = 0; i < questions.size(); ++i) open_.push_back(i);
  }

  Result<double> run() {
    for (;;) {
      const Next next = wait();
      if (next.kind == Next::kDone) break;
      if (next.kind == Next::kCancel) {
        for (const Router::Ticket ticket : next.tickets) scorer_.router_.cancel(ticket);
        continue;
      }
      submit(next.question);
    }
    MutexLock lock(scorer_.mutex_);
    if (scorer_.cancelled_) return cancelled("the adapter pool's operation was cancelled");
    if (!error_.ok()) return error_;
    int64_t right = 0;
    for (size_t i = 0; i < questions_.size(); ++i)
      right += answers_[i].text == questions_[i].answer;
    return static_cast<double>(right) / static_cast<double>(questions_.size());
  }

 private:
  struct Next {
    enum Kind { kAsk, kCancel, kDone } kind;
    size_t question = 0;
    std::vector<Router::Ticket> tickets;
  };
  struct Answer {
    std::unique_ptr<StreamDecoder> decoder;
    std::string text;
  };

  // What there is to do next, when there is something.
  Next wait() EXCLUDES(scorer_.mutex_) {
    MutexLock lock(scorer_.mutex_);
    for (;;) {
      const bool ending = scorer_.cancelled_ || !error_.ok();
      if (running_ == 0 && (ending || open_.empty())) return {Next::kDone, 0, {}};
      if (ending && !told_) {
        told_ = true;
        Next next{Next::kCancel, 0, {}};
        for (const auto& [question, ticket] : tickets_) next.tickets.push_back(ticket);
        return next;
      }
      if (!ending && !open_.empty() && running_ < scorer_.options_.concurrency) {
        if (Clock::real().now() >= next_try_) {
          const size_t question = open_.front();
          open_.pop_front();
          ++running_;
          return {Next::kAsk, question, {}};
        }
        scorer_.changed_.wait_until(scorer_.mutex_, next_try_);
      } else {
        scorer_.changed_.wait(scorer_.mutex_);
      }
    }
  }

  void submit(size_t question) EXCLUDES(scorer_.mutex_) {
    auto ids = question_ids(*model_.text, questions_[question]);
    Status refused = ids.status();
    Result<Router::Ticket> ticket = Router::Ticket{0};
    if (ids.ok()) {
      {
        MutexLock lock(scorer_.mutex_);
        answers_[question].text.clear();
        answers_[question].decoder = std::make_unique<StreamDecoder>(
            model_.text->tokenizer, std::vector<std::string>(), /*skip_special=*/true, false);
      }
      ticket = scorer_.router_.submit(model_, request(question, std::move(*ids)));
      refused = ticket.status();
    }
    MutexLock lock(scorer_.mutex_);
    if (refused.ok()) {
      if (!ended_early(question)) tickets_[question] = *ticket;
    } else {
      ended(question, refused);
    }
  }

  Request request(size_t question, std::vector<int32_t> prompt) {
    Request out;
    out.id = fmt::format("pool-score-{}", question);
    out.prompt = std::move(prompt);
    out.sampling.temperature = 0;
    out.max_tokens = scorer_.options_.max_tokens;
    out.stop_ids = model_.text->eos_ids;
    out.priority = kBackgroundPriority;
    out.received = Clock::real().now();
    out.on_event = [this, question](const TokenEvent& event) {
      MutexLock lock(scorer_.mutex_);
      Answer& answer = answers_[question];
      if (event.kind == TokenEvent::Kind::kToken) answer.text += answer.decoder->push(event.token);
      if (event.kind != TokenEvent::Kind::kFinished) return;
      answer.text += answer.decoder->finish();
      if (tickets_.erase(question) == 0) early_.push_back(question);
      if (event.reason == FinishReason::kError)
        ended(question, event.status);
      else if (event.reason == FinishReason::kCancelled)
        ended(question, cancelled("the server is shutting down"));
      else
        ended(question, Status());
    };
    return out;
  }

  // It may be over before submit() has returned.
  bool ended_early(size_t question) REQUIRES(scorer_.mutex_) {
    return std::erase(early_, question) > 0;
  }

  void ended(size_t question, const Status& status) REQUIRES(scorer_.mutex_) {
    --running_;
    if (status.code() == Code::kResourceExhausted) {  // others fill the engine: again later
      open_.push_front(question);
      next_try_ = Clock::real().now() + scorer_.options_.retry;
    } else if (!status.ok() && error_.ok()) {
      error_ = status.code() == Code::kCancelled
                   ? status
                   : status.in(fmt::format("question {} of {}", question + 1, questions_.size()));
    }
    scorer_.changed_.notify_all();
  }

  RouterScorer& scorer_;
  const ModelHandle model_;
  const std::vector<Question>& questions_;
  std::vector<Answer> answers_ GUARDED_BY(scorer_.mutex_);
  std::deque<size_t> open_ GUARDED_BY(scorer_.mutex_);
  std::map<size_t, Router::Ticket> tickets_ GUARDED_BY(scorer_.mutex_);
  std::vector<size_t> early_ GUARDED_BY(scorer_.mutex_);
  int running_ GUARDED_BY(scorer_.mutex_) = 0;
  bool told_ GUARDED_BY(scorer_.mutex_) = false;  // those that run to end
  Status error_ GUARDED_BY(scorer_.mutex_);
  TimePoint next_try_ GUARDED_BY(scorer_.mutex_){};
};

Result<double> RouterScorer::score(const std::string& path,
                                   const std::vector<Question>& questions) {
  {
    MutexLock lock(mutex_);
    if (cancelled_) return cancelled("the adapter pool's operation was cancelled");
  }
  ASSIGN_OR_RETURN(const ModelHandle model, router_.open_private({"pool-candidate", path}));
  const Result<double> score = Asking(*this, model, questions).run();
  router_.close_private(model);
  return score;
}

void RouterScorer::cancel() {
  MutexLock lock(mutex_);
  cancelled_ = true;
  changed_.notify_all();
}

void RouterScorer::allow() {
  MutexLock lock(mutex_);
  cancelled_ = false;
}

}  // namespace deltad
