// deltactl bench-serve: puts a load on a running OpenAI-style server and reports how it was served.
// Loads nothing itself: any server will do. Every answer is checked before anything is said of its
// speed.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <nlohmann/json.hpp>

#include "client/connect.h"
#include "deltactl/bench_serve_report.h"
#include "deltactl/commands.h"
#include "deltactl/console.h"
#include "io/file_reader.h"
#include "loadgen/generator.h"
#include "loadgen/models.h"
#include "loadgen/request_writer.h"
#include "loadgen/summary.h"
#include "loadgen/workload.h"

namespace deltad {
namespace {

using loadgen::GeneratorState;
using loadgen::PlannedRequest;

struct Options {
  std::string url, endpoint = "chat", prompt = "128", output = "64", prompt_ids, trace, slo, body,
                   api_key;
  std::vector<std::string> models;
  double rate = 0, burst = 1, zipf = 1, duration = 0, timeout = 600;
  int64_t concurrency = 0, requests = 0, warmup = 0;
  uint64_t seed = 0;
  bool no_stream = false, ignore_eos = false, json = false;
};

constexpr int64_t kMostTraceBytes = int64_t{4} << 30;

std::atomic<bool> stop_asked{false};

// The first Ctrl-C ends the load and reports; the second ends the program.
class StopOnInterrupt {
 public:
  StopOnInterrupt() {
    std::signal(SIGINT, [](int) {
      stop_asked.store(true);
      std::signal(SIGINT, SIG_DFL);
    });
  }
  ~StopOnInterrupt() { std::signal(SIGINT, SIG_DFL); }
};

// One line on stderr that is drawn over and over; nothing unless stderr is a terminal.
class ProgressLine {
 public:
  explicit ProgressLine(const loadgen::Summary& summary) : summary_(summary) {}
  ~ProgressLine() {
    if (shown_) fmt::print(stderr, "\r\033[K");
  }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void draw(const GeneratorState& state) {
    fmt::print(stderr,
               "\r\033[K{:.0f} s: {} sent, {} under way, {} answered, {} not; {:.0f} tokens/s",
               state.elapsed, state.sent, state.in_flight, summary_.completed(),
               summary_.requests() - summary_.completed(),
               static_cast<double>(summary_.completion_tokens()) / state.elapsed);
    std::fflush(stderr);
  }
  loadgen::Generator::OnProgress callback() {
    if (!shown_) return nullptr;
    return [this](const GeneratorState& state) { draw(state); };
  }

 private:
  const loadgen::Summary& summary_;
  const bool shown_ = isatty(STDERR_FILENO) != 0;
};

double connect_timeout(const Options& options) { return std::min(options.timeout, 30.0); }

Status check(const Options& options) {
  const int paces = (options.rate > 0) + (options.concurrency > 0) + !options.trace.empty();
  if (paces != 1) return invalid_argument("give one of --rate, --concurrency and --trace");
  if (options.burst != 1 && options.rate <= 0) return invalid_argument("--burst needs --rate");
  if (options.trace.empty() && options.requests == 0 && options.duration == 0) {
    return invalid_argument("give --requests or --duration, or the load would not end");
  }
  if (!options.trace.empty() && !options.models.empty()) {
    return invalid_argument("--trace says which models it wants: leave --models out");
  }
  if (!options.prompt_ids.empty() && options.endpoint == "chat") {
    return invalid_argument("--prompt-ids needs --endpoint completions");
  }
  return Status();
}

Result<loadgen::RequestStyle> request_style(const Options& options) {
  loadgen::RequestStyle style;
  style.chat = options.endpoint == "chat";
  style.streamed = !options.no_stream;
  style.ignore_eos = options.ignore_eos;
  style.api_key = options.api_key;
  style.seed = options.seed;
  if (!options.prompt_ids.empty()) {
    ASSIGN_OR_RETURN(style.prompt_ids, loadgen::parse_range("--prompt-ids", options.prompt_ids));
  }
  if (!options.body.empty()) {
    style.extra = nlohmann::ordered_json::parse(options.body, nullptr, false);
    if (!style.extra.is_object()) {
      return invalid_argument(
          fmt::format("--body: a JSON object was expected, not \"{}\"", options.body));
    }
    for (const char* key : {"model", "messages", "prompt", "max_tokens", "stream", "n"}) {
      if (style.extra.contains(key)) {
        return invalid_argument(fmt::format("--body must not set \"{}\"", key));
      }
    }
  }
  return style;
}

// models: filled in with those of the server if the command line names none.
Result<std::unique_ptr<loadgen::Workload>> make_workload(const Options& options,
                                                         const client::ServerUrl& url,
                                                         const client::SocketAddress& address,
                                                         std::vector<std::string>* models) {
  if (!options.trace.empty()) {
    ASSIGN_OR_RETURN(const std::string text, read_file(options.trace, kMostTraceBytes));
    ASSIGN_OR_RETURN(std::vector<PlannedRequest> trace, loadgen::parse_trace(options.trace, text));
    for (const PlannedRequest& request : trace) {
      if (std::find(models->begin(), models->end(), request.model) == models->end()) {
        models->push_back(request.model);
      }
    }
    return std::unique_ptr<loadgen::Workload>(
        std::make_unique<loadgen::TraceWorkload>(std::move(trace), options.requests));
  }
  loadgen::SyntheticOptions synthetic;
  if (models->empty()) {
    ASSIGN_OR_RETURN(*models,
                     loadgen::list_models(url, address, options.api_key, connect_timeout(options)));
  }
  synthetic.models = *models;
  synthetic.zipf = options.zipf;
  ASSIGN_OR_RETURN(synthetic.prompt_tokens, loadgen::parse_range("--prompt", options.prompt));
  ASSIGN_OR_RETURN(synthetic.max_tokens, loadgen::parse_range("--output", options.output));
  synthetic.rate = options.rate;
  synthetic.shape = options.burst;
  synthetic.requests = options.requests;
  synthetic.seed = options.seed;
  return std::unique_ptr<loadgen::Workload>(
      std::make_unique<loadgen::SyntheticWorkload>(std::move(synthetic)));
}

// A few short requests to each model, one after the other, so that all are loaded before anything
// is measured.
Status warm_up(const Options& options, const std::vector<std::string>& models,
               const client::SocketAddress& address, loadgen::RequestWriter& writer) {
  std::vector<PlannedRequest> requests;
  for (const std::string& model : models) {
    for (int64_t i = 0; i < options.warmup; ++i) {
      requests.push_back({0, model, std::nullopt, 8, 4});
    }
  }
  if (requests.empty()) return Status();
  ASSIGN_OR_RETURN(const auto generator,
                   loadgen::Generator::make(address, {1, 0, options.timeout}));
  loadgen::Summary summary{loadgen::Slo{}};
  loadgen::TraceWorkload workload(std::move(requests), 0);
  RETURN_IF_ERROR(generator->run(workload, writer, &summary, stop_asked, nullptr).status());
  if (summary.completed() == summary.requests()) return Status();
  const auto& [error, detail] = *summary.details().begin();
  return unavailable(fmt::format("warming up: {}: {}", error, detail));
}

std::string describe_pace(const Options& options) {
  if (!options.trace.empty()) return "trace " + options.trace;
  if (options.concurrency > 0) return fmt::format("{} requests at a time", options.concurrency);
  if (options.burst == 1) return fmt::format("Poisson, {} requests/s", options.rate);
  return fmt::format("gamma with shape {}, {} requests/s", options.burst, options.rate);
}

Result<int> run(const Options& options) {
  RETURN_IF_ERROR(check(options));
  loadgen::Slo slo;
  if (!options.slo.empty()) {
    ASSIGN_OR_RETURN(slo, loadgen::parse_slo(options.slo));
  }
  if (options.no_stream && (slo.ttft || slo.tpot)) {
    return invalid_argument("--slo ttft and tpot need a stream: leave --no-stream out");
  }
  ASSIGN_OR_RETURN(const client::ServerUrl url, client::parse_url(options.url));
  if (url.tls) return unimplemented("bench-serve measures servers, not TLS: give an http URL");
  ASSIGN_OR_RETURN(const client::SocketAddress address,
                   client::find_server(url, connect_timeout(options)));
  ASSIGN_OR_RETURN(loadgen::RequestStyle style, request_style(options));
  std::vector<std::string> models = options.models;
  ASSIGN_OR_RETURN(const auto workload, make_workload(options, url, address, &models));
  loadgen::RequestWriter writer(url, std::move(style));
  const StopOnInterrupt stop;
  RETURN_IF_ERROR(warm_up(options, models, address, writer));

  ASSIGN_OR_RETURN(
      const auto generator,
      loadgen::Generator::make(address, {options.concurrency, options.duration, options.timeout}));
  loadgen::Summary summary(slo);
  ServeRun report;
  {
    ProgressLine line(summary);
    ASSIGN_OR_RETURN(report.state,
                     generator->run(*workload, writer, &summary, stop_asked, line.callback()));
  }
  report.url = options.url;
  report.endpoint = writer.style().chat ? "chat/completions" : "completions";
  report.streamed = !options.no_stream;
  report.open_loop = options.concurrency == 0;
  report.pace = describe_pace(options);
  report.seed = options.seed;
  if (options.json) {
    print_json(serve_json(report, summary));
  } else {
    print_serve_table(report, summary);
  }
  return summary.faults() > 0 || summary.completed() == 0 || report.state.stopped ? 1 : 0;
}

void add_load_options(Command* command, Options* o) {
  command->add_option("--rate", o->rate, "Requests a second, sent however slow the server is")
      ->range(1e-3, 1e6);
  command
      ->add_option("--burst", o->burst,
                   "Shape of the gamma-distributed gaps: 1 Poisson (default), below 1 bursts")
      ->range(1e-3, 1e3);
  command->add_option("--concurrency", o->concurrency, "Always so many requests under way")
      ->range(1, 1 << 20);
  command->add_option("--trace", o->trace,
                      "Replay a file, one request a line: {\"at\": seconds, \"model\": …, "
                      "\"prompt_tokens\" or \"prompt\": …, \"max_tokens\": …}");
  command->add_option("--requests", o->requests, "End after so many requests")
      ->range(int64_t{1}, int64_t{1} << 40);
  command->add_option("--duration", o->duration, "Send requests for so many seconds")
      ->range(1e-3, 1e7);
  command->add_option("--seed", o->seed, "Of all random choices (default 0)");
  command
      ->add_option("--warmup", o->warmup,
                   "Requests to each model before the measurement (default 0)")
      ->range(0, 1000);
}

}  // namespace

void add_bench_serve(Command& app, int* exit_code) {
  auto o = std::make_shared<Options>();
  Command* command = app.add_subcommand(
      "bench-serve", "Put a load on an OpenAI-style server and report latencies");
  command->footer(
      "Latencies count from the moment a request was due. The exit code is 1 if an answer was "
      "lost, "
      "malformed or an error other than 429 or 503, or if there was none.");
  command->add_option("--url", o->url, "The server: http://HOST:PORT")->required();
  command->add_option("--endpoint", o->endpoint, "chat (default) or completions")
      ->one_of({"chat", "completions"});
  command
      ->add_option("--models", o->models,
                   "The models to ask, most popular first, comma-separated (default: all that "
                   "/v1/models lists)")
      ->delimiter(',');
  command
      ->add_option("--zipf", o->zipf,
                   "Exponent of the models' popularity (default 1; 0: all alike)")
      ->range(0.0, 20.0);
  add_load_options(command, o.get());
  command->add_option("--prompt", o->prompt,
                      "Prompt tokens, N or LOW:HIGH (default 128), as words "
                      "of about one token");
  command->add_option("--prompt-ids", o->prompt_ids,
                      "Prompts of exactly so many random token ids of LOW:HIGH (completions)");
  command->add_option("--output", o->output, "max_tokens, N or LOW:HIGH (default 64)");
  command->add_flag("--ignore-eos", o->ignore_eos,
                    "Ask for exactly max_tokens (deltad, vLLM), and check it");
  command->add_flag("--no-stream", o->no_stream, "Ask for whole answers, not streams");
  command->add_option("--body", o->body, "A JSON object to put into each request");
  command->add_option("--api-key", o->api_key, "Key to send (default: $OPENAI_API_KEY)")
      ->environment("OPENAI_API_KEY");
  command->add_option("--slo", o->slo, "Limits for goodput in ms: ttft:MS,tpot:MS,e2e:MS");
  command
      ->add_option("--timeout", o->timeout, "Seconds until an answer counts as lost (default 600)")
      ->range(1e-3, 1e6);
  add_json_option(command, &o->json);
  run_command(command, exit_code, &o->json, [o] { return run(*o); });
}

}  // namespace deltad
