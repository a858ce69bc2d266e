// Access: the file of keys, what a key may do, how many requests and tokens, and a file that
// changes.
#include "server/access/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/fake_clock.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/server/sample_access.h"

namespace deltad::testing {
namespace {

using ::testing::HasSubstr;

std::string line(const std::string& name, const std::string& key, const std::string& more = "") {
  return "  - {name: " + name + ", sha256: " + hash_text(hash_key(key)) +
         (more.empty() ? "" : ", " + more) + "}\n";
}

std::string error_of(const std::string& yaml) {
  const auto keys = parse_keys(yaml, "keys.yaml");
  return keys.ok() ? "no error" : keys.status().message();
}

TEST(KeyHash, IsSha256) {
  EXPECT_EQ(hash_text(hash_key("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(parse_hash(hash_text(hash_key("x"))), hash_key("x"));
  EXPECT_FALSE(parse_hash("ba78"));
  EXPECT_FALSE(parse_hash(std::string(64, 'g')));
  const auto one = new_key(), other = new_key();
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_EQ(one->size(), 46u);
  EXPECT_NE(*one, *other);
}

TEST(KeysFile, ReadsEverything) {
  const auto keys =
      parse_keys("keys:\n" + line("team/a", "k1") +
                     line("b", "k2",
                          "models: [base, 'team/*'], admin: true, parallel_requests: 3, "
                          "tokens_per_minute: 600, expires: 2027-01-31"),
                 "keys.yaml");
  ASSERT_TRUE(keys.ok()) << keys.status().message();
  ASSERT_EQ(keys->size(), 2u);
  EXPECT_EQ((*keys)[0].rules.models, std::vector<std::string>{"*"});
  EXPECT_FALSE((*keys)[0].rules.admin);
  const KeyRules& rules = (*keys)[1].rules;
  EXPECT_EQ((*keys)[1].hash, hash_key("k2"));
  EXPECT_EQ(rules.models, (std::vector<std::string>{"base", "team/*"}));
  EXPECT_TRUE(rules.admin);
  EXPECT_EQ(rules.parallel_requests, 3);
  EXPECT_EQ(rules.tokens_per_minute, 600);
  EXPECT_EQ(rules.expires, 1801440000);  // the first second of February 2027
  // What key_line writes is read back the same.
  const auto again = parse_keys("keys:\n" + key_line((*keys)[1]), "again");
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ((*again)[0].rules, rules);
  EXPECT_EQ((*again)[0].hash, (*keys)[1].hash);
  EXPECT_EQ(error_of("keys: []"), "no error");
}

TEST(KeysFile, SaysWhatIsWrongAndWhere) {
  EXPECT_THAT(error_of(""), HasSubstr("expected one list `keys:`"));
  EXPECT_THAT(error_of("keys: []\nmore: 1"), HasSubstr("expected one list `keys:`"));
  EXPECT_THAT(error_of("keys: {a: b}"), HasSubstr("must be a list"));
  EXPECT_THAT(error_of("keys: [}"), HasSubstr("keys.yaml line 1: not valid YAML"));
  EXPECT_THAT(error_of("keys:\n" + line("a", "1") + line("a", "2")),
              HasSubstr("keys.yaml line 3: two keys are named 'a'"));
  EXPECT_THAT(error_of("keys:\n" + line("a", "1") + line("b", "1")),
              HasSubstr("key 'b' has the hash of another"));
  EXPECT_THAT(error_of("keys: [{name: a}]"), HasSubstr("without 'sha256'"));
  EXPECT_THAT(error_of("keys: [{name: a, sha256: 12}]"), HasSubstr("expected 64 hex digits"));
  for (const char* wrong :
       {"parallel_requests: 0", "parallel_requests: x", "tokens_per_minute: 0", "admin: perhaps",
        "expires: tomorrow", "expires: 2027-02-30", "expires: '2027-01-01T25:00:00Z'",
        "models: base", "models: ['']", "colour: red"})
    EXPECT_NE(error_of("keys:\n" + line("a", "1", wrong)), "no error") << wrong;
  EXPECT_NE(error_of("keys:\n" + line("'a b'", "1")), "no error");
  // A key that somebody wrote into the file in place of its hash is not repeated in the log.
  EXPECT_EQ(error_of("keys: [{name: a, sha256: sk-secret}]").find("sk-secret"), std::string::npos);
}

TEST(KeysFile, Patterns) {
  EXPECT_TRUE(matches_pattern("*", "anything/at all"));
  EXPECT_TRUE(matches_pattern("team/*", "team/a/b"));
  EXPECT_FALSE(matches_pattern("team/*", "teams/a"));
  EXPECT_TRUE(matches_pattern("a?c*e", "abcdde"));
  EXPECT_FALSE(matches_pattern("a?c*e", "abcddf"));
  EXPECT_TRUE(matches_pattern("*a*b", "aab-a-b"));
  EXPECT_FALSE(matches_pattern("", "a"));
  EXPECT_FALSE(matches_pattern("base", "base2"));
  // Bounded work for what would take a recursive matcher for ever.
  std::string stars, letters(200, 'a');
  for (int i = 0; i < 100; ++i) stars += "*a";
  EXPECT_FALSE(matches_pattern(stars + "b", letters));
}

TEST(Access, IsOpenOnlyWithoutAnyKeys) {
  const auto open = open_access();
  for (const Need need : {Need::kNothing, Need::kInference, Need::kAdmin})
    EXPECT_TRUE(open->identify("", need).ok());
  const auto keyed = access_with({"user"}, {"root"});
  const auto code = [&](const char* key, Need need) {
    return keyed->identify(key, need).status().code();
  };
  EXPECT_EQ(code("", Need::kNothing), Code::kOk);
  EXPECT_EQ(code("", Need::kInference), Code::kUnauthenticated);
  EXPECT_EQ(code("User", Need::kInference), Code::kUnauthenticated);
  EXPECT_EQ(code("user", Need::kInference), Code::kOk);
  EXPECT_EQ(code("root", Need::kInference), Code::kPermissionDenied);
  EXPECT_EQ(code("user", Need::kAdmin), Code::kPermissionDenied);
  EXPECT_EQ(code("root", Need::kAdmin), Code::kOk);
  EXPECT_EQ((*keyed->identify("user", Need::kInference))->name(), "server.api_keys.0");
  // Keys for one of the two leave the other open.
  EXPECT_TRUE(access_with({}, {"root"})->identify("", Need::kInference).ok());
  EXPECT_TRUE(access_with({"user"})->identify("", Need::kAdmin).ok());
}

TEST(Access, BearerKeys) {
  EXPECT_EQ(bearer_key("Bearer abc"), "abc");
  EXPECT_EQ(bearer_key("bearer  abc"), "abc");
  EXPECT_EQ(bearer_key("Bearer "), "");
  EXPECT_EQ(bearer_key("Basic abc"), "");
  EXPECT_EQ(bearer_key(""), "");
}

class AccessFileTest : public ::testing::Test {
 protected:
  void write(const std::string& yaml) { folder_.write("keys.yaml", yaml); }
  void make(const std::string& yaml) {
    write(yaml);
    AccessOptions options;
    options.keys_file = file_;
    options.clock = &clock_;
    options.unix_now = [this] { return now_; };
    auto made = Access::make(options);
    ASSERT_TRUE(made.ok()) << made.status().message();
    access_ = std::move(*made);
  }
  std::shared_ptr<const Caller> caller(const std::string& key, Need need = Need::kInference) {
    const auto found = access_->identify(key, need);
    return found.ok() ? *found : nullptr;
  }
  Code code(const std::string& key, Need need = Need::kInference) {
    return access_->identify(key, need).status().code();
  }

  TempFolder folder_;
  const std::string file_ = folder_.file("keys.yaml");
  FakeClock clock_;
  int64_t now_ = 0;
  std::unique_ptr<Access> access_;
};

TEST_F(AccessFileTest, AnEmptyFileOpensNothing) {
  make("keys: []\n");
  EXPECT_EQ(code(""), Code::kUnauthenticated);
  EXPECT_EQ(code("", Need::kAdmin), Code::kUnauthenticated);
  EXPECT_EQ(code("", Need::kNothing), Code::kOk);
}

TEST_F(AccessFileTest, Scopes) {
  make("keys:\n" + line("a", "ka", "models: [base, 'team/*']") +
       line("op", "ko", "admin: true, models: []") + line("both", "kb", "admin: true"));
  EXPECT_TRUE(caller("ka")->may_use("base"));
  EXPECT_TRUE(caller("ka")->may_use("team/x"));
  EXPECT_FALSE(caller("ka")->may_use("other"));
  EXPECT_FALSE(caller("ka")->may_use_all());
  EXPECT_EQ(caller("ka")->check_model("other").code(), Code::kPermissionDenied);
  EXPECT_EQ(code("ka", Need::kAdmin), Code::kPermissionDenied);
  EXPECT_EQ(code("ko"), Code::kPermissionDenied);
  EXPECT_EQ(code("ko", Need::kAdmin), Code::kOk);
  EXPECT_TRUE(caller("kb")->may_use_all());
  EXPECT_TRUE(caller("kb", Need::kAdmin)->admin());
}

TEST_F(AccessFileTest, Expiry) {
  make("keys:\n" + line("a", "ka", "expires: '2027-01-31T12:00:00Z'"));
  now_ = *parse_expiry("2027-01-31T12:00:00Z") - 1;
  EXPECT_EQ(code("ka"), Code::kOk);
  ++now_;
  EXPECT_EQ(code("ka"), Code::kUnauthenticated);
  EXPECT_EQ(expiry_text(now_), "2027-01-31T12:00:00Z");
}

TEST_F(AccessFileTest, RequestsAtOnce) {
  make("keys:\n" + line("a", "ka", "parallel_requests: 2") + line("b", "kb"));
  auto first = caller("ka")->admit();
  {
    auto second = caller("ka")->admit();
    ASSERT_TRUE(first.ok() && second.ok());
    const auto third = caller("ka")->admit();
    EXPECT_EQ(third.status().code(), Code::kResourceExhausted);
    EXPECT_GE(third.status().retry_after(), 1);
    EXPECT_TRUE(caller("kb")->admit().ok());
  }
  EXPECT_TRUE(caller("ka")->admit().ok());  // the second has ended
  // A place that is handed on is given back once.
  Admission moved(std::move(*first));
  auto other = caller("ka")->admit();
  EXPECT_TRUE(other.ok());
  EXPECT_FALSE(caller("ka")->admit().ok());
}

TEST_F(AccessFileTest, TokensAMinute) {
  make("keys:\n" + line("a", "ka", "tokens_per_minute: 60"));
  {
    auto admission = caller("ka")->admit();
    ASSERT_TRUE(admission.ok());
    admission->used(50);
    admission->used(40);  // 30 more than there were
  }
  const auto refused = caller("ka")->admit();
  EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
  EXPECT_EQ(refused.status().retry_after(), 31);
  clock_.advance(30);
  EXPECT_FALSE(caller("ka")->admit().ok());
  clock_.advance(1);
  EXPECT_TRUE(caller("ka")->admit().ok());
}

TEST_F(AccessFileTest, ReloadKeepsWhatAKeyHasInUse) {
  make("keys:\n" + line("a", "old", "parallel_requests: 1, tokens_per_minute: 60") +
       line("gone", "kg"));
  auto running = caller("old")->admit();
  running->used(100);
  const auto gone = caller("kg");
  // A new key under the same name, and the other name is gone.
  write("keys:\n" + line("a", "new", "parallel_requests: 1, tokens_per_minute: 60"));
  ASSERT_TRUE(access_->reload().ok());
  EXPECT_EQ(code("old"), Code::kUnauthenticated);
  EXPECT_EQ(code("kg"), Code::kUnauthenticated);
  EXPECT_TRUE(gone->admit().ok());  // a request that was let in goes on
  EXPECT_FALSE(caller("new")->admit().ok());
  // A higher rate holds at once.
  write("keys:\n" + line("a", "new", "parallel_requests: 2, tokens_per_minute: 6000"));
  ASSERT_TRUE(access_->reload().ok());
  EXPECT_TRUE(caller("new")->admit().ok());
}

TEST_F(AccessFileTest, ABrokenFileChangesNothing) {
  make("keys:\n" + line("a", "ka"));
  for (const char* broken : {"", "keys: [", "keys: [{name: b}]"}) {
    write(broken);
    EXPECT_THAT(access_->reload().message(), HasSubstr(file_)) << broken;
    EXPECT_EQ(code("ka"), Code::kOk);
  }
  std::filesystem::remove(file_);
  EXPECT_FALSE(access_->reload().ok());
  EXPECT_EQ(code("ka"), Code::kOk);
}

TEST_F(AccessFileTest, AKeyOfTheConfigMayNotBeInTheFileToo) {
  write("keys:\n" + line("a", "same"));
  AccessOptions options;
  options.keys_file = file_;
  options.api_keys = {"same"};
  EXPECT_THAT(Access::make(options).status().message(), HasSubstr("key 'a' is"));
}

}  // namespace
}  // namespace deltad::testing
