// The adapter pool as a part of the server, over a fake router and a pool that does what a test
// says: scores by background requests, operations one after the other, and the admin API.
#include <gmock/gmock.h>

#include <future>
#include <nlohmann/json.hpp>
#include <thread>

#include "io/safetensors.h"
#include "server/admin/api.h"
#include "server/pool/pool_service.h"
#include "server/pool_metrics.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/server/api_fixture.h"

namespace deltad::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<Question> kQuestions = {{"one", "A"}, {"two", "B"}, {"three", "C"}};

void answer(FakeRouter& router, size_t request, const char* text) {
  router.text(request, text);
  router.finish(request, FinishReason::kStop);
}

class RouterScorerTest : public ::testing::Test {
 protected:
  RouterScorerTest() {
    options.concurrency = 2;
    options.retry = Duration(0);
  }
  std::future<Result<double>> score() {
    scorer = std::make_unique<RouterScorer>(router, options);
    return std::async(std::launch::async, [this] { return scorer->score("/c", kQuestions); });
  }
  std::vector<std::string> changes() {
    std::vector<std::string> out;
    for (const auto& [what, source] : router.changes()) out.push_back(what + " " + source.path);
    return out;
  }
  FakeRouter router;
  ScoringOptions options;
  std::unique_ptr<RouterScorer> scorer;
};

TEST_F(RouterScorerTest, CountsTheAnswersThatAreExact) {
  auto result = score();
  ASSERT_TRUE(router.wait_submitted(2));
  const auto request = router.request(0);
  EXPECT_EQ(request->priority, kBackgroundPriority);
  EXPECT_EQ(request->sampling.temperature, 0);
  EXPECT_EQ(request->max_tokens, 64);
  EXPECT_EQ(request->stop_ids, std::vector<int32_t>{kEos});
  EXPECT_EQ(FakeTokenizer().decode(request->prompt, false), "<user>one\n<assistant>");
  EXPECT_EQ(router.count(), 2u) << "more at once than asked for";
  answer(router, 1, "B");
  ASSERT_TRUE(router.wait_submitted(3));
  answer(router, 0, "A but more");
  answer(router, 2, "C");
  const Result<double> got = result.get();
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_DOUBLE_EQ(*got, 2.0 / 3);
  EXPECT_THAT(changes(), ElementsAre("open /c", "close /c"));
}

TEST_F(RouterScorerTest, AsksAgainWhatTheEngineHadNoPlaceFor) {
  options.concurrency = 1;
  auto result = score();
  ASSERT_TRUE(router.wait_submitted(1));
  router.text(0, "half an ans");
  router.finish(0, FinishReason::kError, 0, resource_exhausted("the engine is full"));
  for (size_t i = 1; i <= 3; ++i) {
    ASSERT_TRUE(router.wait_submitted(i + 1));
    answer(router, i, kQuestions[i - 1].answer.c_str());
  }
  const Result<double> got = result.get();
  ASSERT_TRUE(got.ok());
  EXPECT_DOUBLE_EQ(*got, 1);
}

TEST_F(RouterScorerTest, AFailureEndsTheRestAndSaysWhichQuestion) {
  auto result = score();
  ASSERT_TRUE(router.wait_submitted(2));
  router.finish(1, FinishReason::kError, 0, unavailable("variant cannot be loaded: broken"));
  ASSERT_TRUE(router.wait_cancelled(1));
  EXPECT_THAT(router.cancelled(), ElementsAre(0u));
  router.finish(0, FinishReason::kCancelled);
  const Result<double> got = result.get();
  EXPECT_EQ(got.status().code(), Code::kUnavailable);
  EXPECT_THAT(got.status().message(), HasSubstr("question 2 of 3: variant cannot be loaded"));
  EXPECT_EQ(router.count(), 2u);
  EXPECT_THAT(changes(), ElementsAre("open /c", "close /c"));
}

TEST_F(RouterScorerTest, IsCancelled) {
  auto result = score();
  ASSERT_TRUE(router.wait_submitted(2));
  scorer->cancel();
  ASSERT_TRUE(router.wait_cancelled(2));
  for (const size_t i : {0, 1}) router.finish(i, FinishReason::kCancelled);
  EXPECT_EQ(result.get().status().code(), Code::kCancelled);
  EXPECT_EQ(scorer->score("/c", kQuestions).status().code(), Code::kCancelled);
  EXPECT_EQ(router.count(), 2u);
}

// Keeps what it is told to keep. An add scores the adapter, and stands still while it is held.
class FakePool final : public AdapterPool {
 public:
  FakePool(PoolScorer& scorer, PoolPublisher& publisher) : scorer_(scorer), publisher_(publisher) {
    view_.budget = 100;
  }
  Status add(const std::string& name, const std::string& path, const std::string&,
             const PoolProgress& progress, PoolReport* report) override {
    report->operation = "add " + name;
    progress("scoring " + name, *report);
    ASSIGN_OR_RETURN(const double score, scorer_.score(path, kQuestions));
    PoolTrial trial;
    trial.adapters = {name};
    trial.accepted = score > 0.5;
    trial.scores = {{name, "d-" + name, score, score, 3}};
    report->trials = {trial};
    if (!trial.accepted) return resource_exhausted("no room for " + name);
    report->accepted = true;
    view_.adapters.push_back(trial.scores[0]);
    view_.members.push_back({"d-" + name, "/pool/d-" + name, 10, 4, 16, {name}});
    view_.bytes += 10;
    return publisher_.publish(view_);
  }
  Status remove(const std::string& name) override {
    if (view_.adapter(name) == nullptr) return not_found("no adapter " + name);
    std::erase_if(view_.adapters, [&](const PoolAdapter& a) { return a.name == name; });
    std::erase_if(view_.members, [&](const PoolMember& m) { return m.adapters[0] == name; });
    view_.bytes -= 10;
    return publisher_.publish(view_);
  }
  Status set_budget(int64_t bytes, const PoolProgress&, PoolReport*) override {
    view_.budget = bytes;
    return Status();
  }
  PoolView view() const override { return view_; }

 private:
  PoolScorer& scorer_;
  PoolPublisher& publisher_;
  PoolView view_;
};

class PoolServiceTest : public ::testing::Test {
 protected:
  PoolServiceTest() : access_(open_access()), api_(*access_, observer_) {
    ScoringOptions options;
    options.concurrency = 3;
    auto made = PoolService::start(
        options,
        [](PoolScorer& scorer, PoolPublisher& publisher) {
          return Result<std::unique_ptr<AdapterPool>>(
              std::make_unique<FakePool>(scorer, publisher));
        },
        router_);
    EXPECT_TRUE(made.ok());
    service_ = std::move(*made);
    Serving serving;
    serving.router = &router_;
    serving.engine = &engine_;
    serving.pool = service_.get();
    api_.readiness().set_ready(serving);
    path_ = folder_.file("adapter");
    EXPECT_TRUE(write_file(path_, "{}").ok());
  }
  std::shared_ptr<Answer> ask(const std::string& method, const std::string& target,
                              const std::string& body = "") {
    auto answer = std::make_shared<Answer>();
    HttpRequest request;
    request.method = method;
    request.target = "/admin/v1/pool" + target;
    request.body = body;
    api_.handle(std::move(request), std::make_shared<FakeExchange>(answer));
    answer->pump();
    return answer;
  }
  std::shared_ptr<Answer> add(const std::string& name) {
    return ask("POST", "/adapters",
               Json{{"name", name}, {"path", path_}, {"questions", path_}}.dump());
  }
  // Answers the next three questions.
  void let_score(bool well) {
    ASSERT_TRUE(router_.wait_submitted(scored_ + 3));
    for (const Question& question : kQuestions)
      answer(router_, scored_++, well ? question.answer.c_str() : "?");
  }
  Json ended(const Json& operation) {
    for (;;) {
      const Json now = ask("GET", "/operations/" + operation["id"].dump())->json();
      if (now["state"] != "queued" && now["state"] != "running") return now;
      std::this_thread::yield();
    }
  }

  TempFolder folder_;
  std::string path_;
  size_t scored_ = 0;
  Observer observer_;  // outlives all that answers
  FakeRouter router_;
  FakeEngine engine_;
  const std::unique_ptr<Access> access_;
  AdminApi api_;
  std::unique_ptr<PoolService> service_;
};

TEST_F(PoolServiceTest, AnAdapterIsScoredAndServedUnderItsName) {
  const auto added = add("poet");
  EXPECT_EQ(added->response.status, 202);
  let_score(true);
  const Json operation = ended(added->json());
  EXPECT_EQ(operation["state"], "done");
  EXPECT_EQ(operation["report"]["trials"][0]["scores"][0]["score"], 1.0);
  ASSERT_EQ(router_.publications().size(), 1u);
  const Router::Publication published = router_.publications()[0];
  EXPECT_EQ(published.names, (std::map<std::string, std::string>{{"poet", "pool/d-poet"}}));
  EXPECT_EQ(published.members[0].path, "/pool/d-poet");
  const Json pool = ask("GET", "")->json();
  EXPECT_EQ(pool["used_bytes"], 10);
  EXPECT_EQ(pool["adapters"][0]["member"], "pool/d-poet");
  EXPECT_EQ(ask("GET", "/adapters/poet")->json()["served_by"]["bits"], 16);
  EXPECT_EQ(add("poet")->response.status, 409);
  const auto removed = ask("DELETE", "/adapters/poet");
  EXPECT_EQ(removed->response.status, 202);
  EXPECT_EQ(ended(removed->json())["state"], "done");
  EXPECT_TRUE(router_.publications()[1].names.empty());
  EXPECT_EQ(ask("GET", "/adapters/poet")->response.status, 404);
}

TEST_F(PoolServiceTest, ARefusalShowsTheFigures) {
  const auto added = add("poet");
  let_score(false);
  const Json operation = ended(added->json());
  EXPECT_EQ(operation["state"], "failed");
  EXPECT_EQ(operation["error"]["status"], 507);
  EXPECT_EQ(operation["error"]["message"], "no room for poet");
  EXPECT_EQ(operation["report"]["trials"][0]["scores"][0]["score"], 0.0);
  EXPECT_TRUE(router_.publications().empty());
  PrometheusText text;
  render_pool(service_->figures(), text);
  EXPECT_THAT(text.text(),
              HasSubstr("deltad_pool_operations_total{operation=\"add\",result=\"failed\"} 1\n"));
  EXPECT_THAT(text.text(), HasSubstr("deltad_pool_budget_bytes 100\n"));
}

TEST_F(PoolServiceTest, OperationsRunOneAfterTheOther) {
  const auto first = add("one"), second = add("two");
  ASSERT_TRUE(router_.wait_submitted(3));
  const Json running = ask("GET", "/operations/1")->json();
  EXPECT_EQ(running["state"], "running");
  EXPECT_EQ(running["doing"], "scoring one");
  EXPECT_EQ(ask("GET", "/operations/2")->json()["state"], "queued");
  EXPECT_EQ(add("two")->response.status, 409) << "it is on its way";
  EXPECT_EQ(service_->figures().waiting, 2);
  // One that is to go before it has come has its turn after it.
  const auto gone = ask("DELETE", "/adapters/two");
  EXPECT_EQ(gone->response.status, 202);
  let_score(true);
  EXPECT_EQ(ended(first->json())["state"], "done");
  let_score(true);
  EXPECT_EQ(ended(second->json())["state"], "done");
  EXPECT_EQ(ended(gone->json())["state"], "done");
  EXPECT_EQ(ask("GET", "")->json()["adapters"].size(), 1u);
  EXPECT_EQ(ask("GET", "")->json()["operations"].size(), 3u);
}

TEST_F(PoolServiceTest, WhatIsPlainlyWrongIsRefusedAtOnce) {
  expect_error(*ask("POST", "/adapters", R"({"name": "a", "path": "/x"})"), 400, "questions");
  expect_error(*ask("POST", "/adapters", R"({"name": "a", "path": "x", "questions": "/q"})"), 400,
               "path", "absolute");
  expect_error(*ask("POST", "/adapters", R"({"name": "a", "path": "/x", "questions": "/q"})"), 400,
               "", "'/x' does not exist");
  EXPECT_EQ(add("math")->response.status, 409);  // a variant's
  EXPECT_EQ(add("pool/d-poet")->response.status, 400);
  EXPECT_EQ(ask("DELETE", "/adapters/nobody")->response.status, 404);
  EXPECT_EQ(ask("PUT", "/budget", R"({"bytes": 0})")->response.status, 400);
  EXPECT_EQ(ask("GET", "/operations/7")->response.status, 404);
  EXPECT_EQ(ask("GET", "/operations/seven")->response.status, 404);
  EXPECT_EQ(ask("POST", "/budget", "{}")->response.status, 405);
  EXPECT_EQ(router_.count(), 0u);
  const auto budget = ask("PUT", "/budget", R"({"bytes": 50})");
  EXPECT_EQ(budget->response.status, 202);
  EXPECT_EQ(ended(budget->json())["state"], "done");
  EXPECT_EQ(ask("GET", "")->json()["budget_bytes"], 50);
}

TEST_F(PoolServiceTest, AnOperationIsCancelledAndTheNextOneRuns) {
  const auto first = add("one"), second = add("two"), third = add("three");
  ASSERT_TRUE(router_.wait_submitted(3));
  EXPECT_EQ(ask("DELETE", "/operations/2")->json()["state"], "cancelled");
  EXPECT_EQ(ask("DELETE", "/operations/1")->response.status, 202);
  ASSERT_TRUE(router_.wait_cancelled(3));
  for (; scored_ < 3; ++scored_) router_.finish(scored_, FinishReason::kCancelled);
  EXPECT_EQ(ended(first->json())["state"], "cancelled");
  EXPECT_EQ(ask("DELETE", "/operations/1")->response.status, 409);
  let_score(true);
  EXPECT_EQ(ended(third->json())["state"], "done");
  EXPECT_EQ(ended(second->json())["error"]["status"], 503);
}

TEST_F(PoolServiceTest, StoppingCancelsWhatRunsAndWhatWaits) {
  const auto first = add("one"), second = add("two");
  ASSERT_TRUE(router_.wait_submitted(3));
  auto stopped = std::async(std::launch::async, [this] { service_->stop(); });
  ASSERT_TRUE(router_.wait_cancelled(3));
  for (size_t i = 0; i < 3; ++i) router_.finish(i, FinishReason::kCancelled);
  stopped.get();
  EXPECT_EQ(ended(first->json())["state"], "cancelled");
  EXPECT_EQ(ended(second->json())["state"], "cancelled");
  EXPECT_EQ(add("three")->response.status, 503);
  EXPECT_TRUE(router_.publications().empty());
}

TEST_F(PoolServiceTest, WithoutAPoolTheRoutesSaySo) {
  Serving serving;
  serving.router = &router_;
  serving.engine = &engine_;
  api_.readiness().set_ready(serving);
  expect_error(*ask("GET", ""), 404, "", "no adapter pool");
}

}  // namespace
}  // namespace deltad::testing
