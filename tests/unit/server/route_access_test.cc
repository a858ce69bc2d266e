// Every route of both listeners × no key, wrong key, a key without the right, a right key, an admin
// key. The routes come from the tables of the code.
#include <string>
#include <utility>
#include <vector>

#include "server/admin/api.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/server/api_fixture.h"

namespace deltad::testing {
namespace {

// The keys: any model; the admin API only; both; and one that has ended.
constexpr const char* kKeys[] = {"", "wrong", "user", "operator", "both", "ended"};

std::unique_ptr<Access> sample_access(const TempFolder& folder) {
  std::string yaml = "keys:\n";
  const auto add = [&](const char* key, const char* rules) {
    yaml +=
        std::string("  - {name: ") + key + ", sha256: " + hash_text(hash_key(key)) + rules + "}\n";
  };
  add("user", "");
  add("operator", ", admin: true, models: []");
  add("both", ", admin: true");
  add("ended", ", admin: true, expires: 2000-01-01");
  AccessOptions options;
  options.keys_file = folder.write("keys.yaml", yaml);
  return std::move(*Access::make(options));
}

// 0: let in.
int expected(Need need, const std::string& key) {
  if (need == Need::kNothing) return 0;
  if (key.empty() || key == "wrong" || key == "ended") return 401;
  if (key == "both") return 0;
  if (key == "user") return need == Need::kInference ? 0 : 403;
  return need == Need::kAdmin ? 0 : 403;  // operator
}

class RouteAccessTest : public ::testing::Test {
 protected:
  RouteAccessTest()
      : access_(sample_access(folder_)),
        api_({}, *access_, observer_),
        admin_(*access_, observer_) {
    Serving serving;
    serving.router = &router_;
    serving.engine = &engine_;
    api_.set_ready(serving);
    admin_.set_ready(serving);
  }

  void check(HttpHandler& handler, const std::string& method, std::string path, Need need) {
    for (const char* name : {"{model}", "{}"})
      if (const size_t at = path.find(name); at != std::string::npos)
        path.replace(at, std::string(name).size(), "math");
    for (const std::string key : kKeys) {
      auto answer = std::make_shared<Answer>();
      HttpRequest request;
      request.method = method;
      request.target = path;
      if (!key.empty()) request.headers = {{"authorization", "Bearer " + key}};
      handler.handle(std::move(request), std::make_shared<FakeExchange>(answer));
      answer->pump();
      ASSERT_TRUE(answer->finished);
      const int status = answer->response.status;
      const int refusal = status == 401 || status == 403 ? status : 0;
      EXPECT_EQ(refusal, expected(need, key)) << method << " " << path << " with '" << key << "'";
    }
  }

  TempFolder folder_;
  const std::unique_ptr<Access> access_;
  FakeRouter router_;
  FakeEngine engine_;
  Observer observer_;
  OpenAiApi api_;
  AdminApi admin_;
};

TEST_F(RouteAccessTest, EveryRouteOfThePublicListener) {
  size_t open = 0;
  for (const KnownRoute& route : known_routes()) {
    EXPECT_NE(route.need, Need::kAdmin) << "the public listener has no admin routes";
    if (route.need == Need::kNothing) ++open;
    check(api_, std::string(route.allow.substr(0, route.allow.find(','))), std::string(route.path),
          route.need);
  }
  EXPECT_EQ(open, 3u) << "health, ready and metrics; a further open route is to be thought over";
}

TEST_F(RouteAccessTest, EveryRouteOfTheAdminListener) {
  size_t open = 0;
  for (const KnownAdminRoute& route : known_admin_routes()) {
    if (route.need == Need::kNothing) ++open;
    check(admin_, std::string(route.method), std::string(route.path), route.need);
  }
  EXPECT_EQ(open, 4u)
      << "health and the page's three files; a further open route is to be thought over";
  // What there is not needs a key before it says so.
  check(admin_, "GET", "/admin/v1/nothing", Need::kAdmin);
  check(admin_, "PATCH", "/admin/v1/variants", Need::kAdmin);
}

// What a key may use is all that it hears of.
TEST_F(RouteAccessTest, ModelsOutsideTheScopeAreNotNamed) {
  AccessOptions options;
  options.keys_file = folder_.write("scoped.yaml", "keys: [{name: a, models: ['org/*'], sha256: " +
                                                       hash_text(hash_key("k")) + "}]\n");
  const auto access = std::move(*Access::make(options));
  OpenAiApi api({}, *access, observer_);
  Serving serving;
  serving.router = &router_;
  serving.engine = &engine_;
  api.set_ready(serving);
  const auto ask = [&](const std::string& method, const std::string& path,
                       const std::string& body) {
    auto answer = std::make_shared<Answer>();
    HttpRequest request;
    request.method = method;
    request.target = path;
    request.headers = {{"authorization", "Bearer k"}};
    request.body = body;
    api.handle(std::move(request), std::make_shared<FakeExchange>(answer));
    answer->pump();
    for (const char* other : {"\"math\"", ", math"})
      EXPECT_EQ(answer->response.body.find(other), std::string::npos) << answer->response.body;
    return answer;
  };
  const auto list = ask("GET", "/v1/models", "")->json()["data"];
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0]["id"], "org/poet");
  EXPECT_EQ(ask("GET", "/v1/models/org/poet", "")->response.status, 200);
  expect_error(*ask("GET", "/v1/models/org/none", ""), 404, "model");
  for (const std::string model : {"math", "base", "none", ""}) {
    const std::string fields = R"({"model":")" + model + R"(",)";
    if (!model.empty()) expect_error(*ask("GET", "/v1/models/" + model, ""), 403, "model");
    expect_error(*ask("POST", "/v1/completions", fields + R"("prompt":"x"})"), 403, "model");
    expect_error(*ask("POST", "/v1/chat/completions",
                      fields + R"("messages":[{"role":"user","content":"x"}]})"),
                 403, "model");
    expect_error(*ask("POST", "/tokenize", fields + R"("prompt":"x"})"), 403, "model");
    expect_error(*ask("POST", "/detokenize", fields + R"("tokens":[1]})"), 403, "model");
  }
}

}  // namespace
}  // namespace deltad::testing
