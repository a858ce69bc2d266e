// Chat templates against what jinja2 renders: tests/golden/templates/cases.jsonl.gz, a case
// a line.
#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <ctime>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "tests/support/golden_lines.h"

namespace deltad {
namespace {

using Json = nlohmann::ordered_json;

std::string golden(const std::string& name) { return read_golden("templates/" + name); }

int64_t unix_seconds(const std::string& iso) {
  std::tm t{};
  EXPECT_EQ(6, std::sscanf(iso.c_str(), "%d-%d-%dT%d:%d:%d", &t.tm_year, &t.tm_mon, &t.tm_mday,
                           &t.tm_hour, &t.tm_min, &t.tm_sec))
      << iso;
  t.tm_year -= 1900;
  t.tm_mon -= 1;
  return timegm(&t);
}

struct Outcome {
  std::string phase;  // compile, render, or done
  std::string text;   // or the message, without "line N: "
};

Outcome run(const std::string& source, const Json& variables, int64_t now = 0,
            const TemplateLimits& limits = {}) {
  const auto failed = [](const char* phase, const Status& status) {
    EXPECT_EQ(Code::kInvalidArgument, status.code());
    const std::string& message = status.message();
    EXPECT_EQ(0u, message.find("line ")) << message;
    const size_t colon = message.find(": ");
    EXPECT_NE(std::string::npos, colon) << message;
    return Outcome{phase, message.substr(colon + 2)};
  };
  auto compiled = ChatTemplate::compile(source, limits);
  if (!compiled.ok()) return failed("compile", compiled.status());
  auto text = (*compiled)->render(variables, now);
  if (!text.ok()) return failed("render", text.status());
  return {"done", *text};
}

Json variables_of(const Json& c) {
  Json v = {{"messages", c["messages"]},
            {"tools", c["tools"]},
            {"documents", c["documents"]},
            {"add_generation_prompt", c["add_generation_prompt"]}};
  for (const auto& [name, value] : c["kwargs"].items()) v[name] = value;
  return v;
}

// Empty if the outcome is what the case expects, else what is wrong.
std::string mismatch(const Json& c, const Outcome& got) {
  const std::string shown = got.phase + ": " + got.text.substr(0, 300);
  if (c.contains("expected")) {
    const std::string expected = c["expected"];
    if (got.phase == "done" && got.text == expected) return "";
    return "expected " + Json(expected.substr(0, 300)).dump() + "\n  got " + Json(shown).dump();
  }
  if (c.contains("or_expected") && got.phase == "done" && got.text == c["or_expected"]) return "";
  const Json& error = c["expected_error"];
  const std::string phase = error["phase"];
  if (got.phase == "done" || (phase != "any" && got.phase != phase)) {
    return "expected an error, " + error.dump() + "\n  got " + Json(shown).dump();
  }
  if (error["type"] == "TemplateError" && got.text != error["message"]) {
    return "expected the message " + error["message"].dump() + "\n  got " + Json(shown).dump();
  }
  return "";
}

TEST(ChatTemplateTest, RendersAllGoldenCasesAsJinja) {
  int cases = 0;
  std::string failed;
  for (const Json& c : golden_lines<Json>("templates/cases.jsonl.gz")) {
    ++cases;
    const std::string name = c["name"];
    const std::string source =
        c.contains("source") ? c["source"].get<std::string>() : golden(c["template"]);
    const Outcome got = run(source, variables_of(c), unix_seconds(c["now"]));
    const std::string wrong = mismatch(c, got);
    EXPECT_EQ("", wrong) << name;
    if (!wrong.empty()) failed += " " + name;
  }
  EXPECT_EQ(445, cases);
  EXPECT_EQ("", failed);
}

std::string rendered(const std::string& source, const Json& variables = Json::object()) {
  const Outcome o = run(source, variables);
  EXPECT_EQ("done", o.phase) << source << ": " << o.text;
  return o.text;
}

std::string message_of(const std::string& source, const Json& variables = Json::object()) {
  auto compiled = ChatTemplate::compile(source);
  if (!compiled.ok()) return compiled.status().message();
  auto text = (*compiled)->render(variables, 0);
  return text.ok() ? "no error" : text.status().message();
}

TEST(ChatTemplateTest, SaysTheLineOfAnError) {
  EXPECT_EQ("line 3: unexpected 'end of print statement'", message_of("a\nb\n{{ 1 + }}"));
  EXPECT_EQ("line 2: No filter named 'nope'.", message_of("a\n{{ 1 | nope }}"));
  EXPECT_EQ("line 4: stop",
            message_of("{% if true %}\n\n\n{{ raise_exception('stop') }}{% endif %}"));
  EXPECT_EQ("line 2: 'x' is undefined",
            message_of("{% macro m() %}\n{{ x.y }}{% endmacro %}\n{{ m() }}"));
  EXPECT_EQ("line 3: division by zero", message_of("{{\n1 +\n1 / 0 }}"));
  EXPECT_EQ("line 1: the template is not valid UTF-8", message_of("a\xff"));
}

TEST(ChatTemplateTest, RefusesToReadOtherTemplates) {
  for (const char* tag : {"include 'x'", "import 'x' as y", "from 'x' import y", "extends 'x'"}) {
    const std::string name = std::string(tag).substr(0, std::string(tag).find(' '));
    EXPECT_EQ("line 1: {% " + name + " %} is not supported: a chat template stands alone",
              message_of("{% " + std::string(tag) + " %}"));
    EXPECT_EQ("ok", rendered("{% if false %}{% " + std::string(tag) + " %}{% endif %}ok"));
  }
}

TEST(ChatTemplateTest, WantsAnObjectOfValidText) {
  auto compiled = ChatTemplate::compile("{{ x }}");
  ASSERT_TRUE(compiled.ok());
  EXPECT_EQ(Code::kInvalidArgument, (*compiled)->render(Json::array(), 0).status().code());
  EXPECT_EQ(Code::kInvalidArgument, (*compiled)->render({{"x", "\xff"}}, 0).status().code());
  Json deep = 1;
  for (int i = 0; i < 1000; ++i) deep = Json::array({deep});
  EXPECT_EQ(Code::kInvalidArgument, (*compiled)->render({{"x", deep}}, 0).status().code());
}

TEST(ChatTemplateTest, KeepsNumbersOfJsonExact) {
  const Json v = {{"u", uint64_t{18446744073709551615u}}, {"i", INT64_MIN}, {"d", 0.1}};
  EXPECT_EQ("18446744073709551615 -9223372036854775808 0.1",
            rendered("{{ u }} {{ i | tojson }} {{ d }}", v));
  EXPECT_EQ("18446744073709551616", rendered("{{ u + 1 }}", v));
}

// Deeper than any stack would bear if nesting were not bounded.
TEST(ChatTemplateTest, BoundsNesting) {
  const auto many = [](const std::string& s, int n) {
    std::string all;
    for (int i = 0; i < n; ++i) all += s;
    return all;
  };
  constexpr int kMany = 10'000;
  const std::vector<std::string> sources = {
      "{{ " + many("(", kMany) + "1" + many(")", kMany) + " }}",
      "{{ " + many("[", kMany) + many("]", kMany) + " }}",
      "{{ " + many("{1:", kMany) + "1" + many("}", kMany) + " }}",
      "{{ " + many("-", kMany) + "1 }}",
      "{{ " + many("not ", kMany) + "1 }}",
      "{{ 1" + many(" + 1", kMany) + " }}",
      "{{ 1" + many(" if 1 else 1", kMany) + " }}",
      "{{ 1" + many(" and 1", kMany) + " }}",
      "{{ x" + many(".x", kMany) + " }}",
      "{{ x" + many("[0]", kMany) + " }}",
      "{{ x" + many("()", kMany) + " }}",
      "{{ x" + many("|trim", kMany) + " }}",
      "{{ x" + many(" is none is none", 1) + " }}",
      "{{ " + many("f(", kMany) + "1" + many(")", kMany) + " }}",
      "{% set " + many("(", kMany) + "a" + many(")", kMany) + " = 1 %}",
      "{% for " + many("(", kMany) + "a" + many(",)", kMany) + " in x %}{% endfor %}",
      many("{% if 1 %}", kMany) + many("{% endif %}", kMany),
      many("{% for i in [1] %}", kMany) + many("{% endfor %}", kMany),
      many("{% macro m() %}", kMany) + many("{% endmacro %}", kMany),
      many("{% filter trim %}", kMany) + many("{% endfilter %}", kMany),
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}",
      "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{% block b %}{{ self.b() }}{% endblock %}",
      "{% set n = namespace(v=1) %}{% for i in range(9999) %}{% set n.v = [n.v] %}{% endfor %}",
      "{% set n = namespace(v='a') %}{% for i in range(9999) %}{% set n.v = n.v | map('upper') %}"
      "{% endfor %}",
  };
  for (const std::string& source : sources) {
    const Outcome o = run(source, {{"x", " a "}});
    EXPECT_NE("done", o.phase) << source.substr(0, 60);
  }
  EXPECT_EQ("1", rendered("{{ " + many("(", 60) + "1" + many(")", 60) + " }}"));
  EXPECT_EQ("151", rendered("{{ 1" + many(" + 1", 150) + " }}"));
}

// Values that lead to themselves are let go of at the end (the leak checker watches).
TEST(ChatTemplateTest, FreesCycles) {
  EXPECT_EQ("1", rendered("{% set n = namespace() %}{% set n.n = n %}{% set n.l = [n] %}1"));
  EXPECT_EQ("1", rendered("{% macro m() %}{% macro k() %}{% endmacro %}{% set q = k %}1{% endmacro "
                          "%}{{ m() }}"));
  EXPECT_EQ("True", rendered("{% set n = namespace() %}{% for i in [1] %}{% set n.l = loop %}"
                             "{{ loop.changed(loop) }}{% endfor %}"));
  EXPECT_EQ("", rendered("{% set n = namespace(l=0) %}{% for x in [n, n] | map(attribute='l') %}"
                         "{% set n.l = loop %}{% endfor %}"));
  // A long chain is not freed by recursion.
  EXPECT_EQ("", rendered("{% set n = namespace() %}{% for i in range(50000) %}"
                         "{% set n.n = namespace(n=n.n) %}{% endfor %}"));
}

TEST(ChatTemplateTest, BoundsOutputAndWork) {
  TemplateLimits limits;
  limits.output_bytes = 1000;
  limits.steps = 10'000;
  const Json none = Json::object();
  EXPECT_EQ("done", run("{{ 'a' * 1000 }}", none, 0, limits).phase);
  EXPECT_EQ("render", run("{{ 'a' * 1001 }}", none, 0, limits).phase);
  EXPECT_EQ("render", run("{{ 'a' * 600 }}{{ 'a' * 600 }}", none, 0, limits).phase);
  EXPECT_EQ("render",
            run("{% set x %}{{ 'a' * 600 }}{{ 'a' * 600 }}{% endset %}", none, 0, limits).phase);
  EXPECT_EQ("render", run("{% for i in range(9999) %}{% endfor %}", none, 0, limits).phase);
  EXPECT_EQ("render", run("{{ range(99999) | list }}", none, 0, limits).phase);
  // Many strings, none too long by itself.
  EXPECT_EQ("render", run("{% set n = namespace(l=[]) %}{% for i in range(200) %}"
                          "{% set n.l = n.l + ['a' * 900] %}{% endfor %}",
                          none, 0, limits)
                          .phase);
}

TEST(ChatTemplateTest, ManyThreadsRenderOneTemplate) {
  auto compiled = ChatTemplate::compile(golden("typed_tools.jinja"));
  ASSERT_TRUE(compiled.ok());
  const Json v = {
      {"messages", {{{"role", "user"}, {"content", "hi"}}}},
      {"tools",
       {{{"name", "f"}, {"parameters", {{"properties", {{"a", {{"type", "integer"}}}}}}}}}}};
  const std::string expected = *(*compiled)->render(v, 0);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        auto text = (*compiled)->render(v, 0);
        if (!text.ok() || *text != expected) ++wrong[static_cast<size_t>(t)];
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(std::vector<int>(4, 0), wrong);
}

}  // namespace
}  // namespace deltad
