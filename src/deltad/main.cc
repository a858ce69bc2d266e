// deltad: serves one base model and its variants. Reads the config, starts the daemon, and waits
// for signals: SIGHUP reads the config anew; the first SIGTERM or SIGINT drains, a second one stops
// at once. Exit codes: 0 drained, 1 failed, 2 the command line or config is wrong.
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/version.h"
#include "deltad/daemon.h"
#include "io/file_reader.h"
#include "manual/command.h"
#include "manual/man_page.h"
#include "parallel/shard_map.h"

namespace {

using deltad::Config;
using deltad::Status;

struct CommandLine {
  std::string config_file, base, listen, watch, device;
  std::vector<std::string> variants;
  int threads = -1, tensor_parallel = 0;
  bool check_only = false;
};

int fail(const Status& status, int code) {
  fmt::print(stderr, "deltad: {}\n", status.message());
  return code;
}

// The file, with the command line over it.
deltad::Result<Config> make_config(const CommandLine& line) {
  Config config;
  if (!line.config_file.empty()) {
    ASSIGN_OR_RETURN(const std::string yaml, deltad::read_file(line.config_file));
    RETURN_IF_ERROR(deltad::read_config(yaml, line.config_file, &config));
  }
  if (!line.base.empty()) config.base = line.base;
  if (config.base.empty())
    return deltad::invalid_argument("no base model: give --base PATH, or `base:` in the config");
  for (const std::string& text : line.variants) {
    ASSIGN_OR_RETURN(deltad::VariantSource variant, deltad::parse_variant(text));
    std::erase_if(config.variants, [&](const auto& other) { return other.name == variant.name; });
    config.variants.push_back(std::move(variant));
  }
  if (!line.watch.empty()) config.watch.folder = line.watch;
  if (!line.listen.empty()) {
    RETURN_IF_ERROR(deltad::check_listen(line.listen));
    config.http.listen = line.listen;
  }
  if (!config.admin_listen.empty() && deltad::listen_alike(config.admin_listen, config.http.listen))
    return deltad::invalid_argument(
        fmt::format("server.admin.listen is {}, which server.listen, {}, takes already: give it "
                    "another port",
                    config.admin_listen, config.http.listen));
  if (line.threads >= 0) config.cpu.threads = line.threads;
  if (!line.device.empty()) deltad::parse_device(line.device, &config.device);
  if (line.tensor_parallel > 0) config.tensor_parallel = line.tensor_parallel;
  return config;
}

void reload(const CommandLine& line, deltad::Daemon& daemon) {
  if (line.config_file.empty()) {
    deltad::log_warning("SIGHUP: there is no config file to read anew");
    return;
  }
  const auto fresh = make_config(line);
  const Status status = fresh.ok() ? daemon.reload(*fresh) : daemon.refuse_reload(fresh.status());
  if (!status.ok()) deltad::log_error("the config stays as it was: {}", status.message());
}

int serve(const CommandLine& line, const Config& config) {
  // Every thread inherits the blocked signals; only this one takes them.
  sigset_t signals;
  sigemptyset(&signals);
  for (int s : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, s);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  auto daemon = deltad::Daemon::start(config, [] { kill(getpid(), SIGTERM); });
  if (!daemon.ok()) return fail(daemon.status(), 1);
  int received = 0;
  while (sigwait(&signals, &received) == 0 && received == SIGHUP) reload(line, **daemon);
  if (const Status failure = (*daemon)->failure(); !failure.ok()) return fail(failure, 1);
  if (!(*daemon)->loaded()) {
    deltad::log_info("stopped while loading");
    std::_Exit(0);  // the loading thread holds nothing that needs an orderly end
  }
  deltad::log_info("{}: draining for at most {:.0f} s", received == SIGTERM ? "SIGTERM" : "SIGINT",
                   (*daemon)->drain_seconds());
  std::thread([signals] {
    int second = 0;
    while (sigwait(&signals, &second) == 0 && second == SIGHUP) {
    }
    deltad::log_warning("second signal: stopping at once");
    std::_Exit(1);
  }).detach();
  (*daemon)->drain();
  if (const Status device = (*daemon)->device_health(); !device.ok()) {
    // What hangs cannot be waited for.
    deltad::log_error("ending without an orderly stop: {}", device.message());
    std::_Exit(1);
  }
  deltad::log_info("drained");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  deltad::Command app(
      "Serves one base language model and its fine-tuned variants from one copy of the weights.",
      "deltad");
  CommandLine line;
  app.add_option("--config", line.config_file, "YAML file; deltad.yaml(5) describes every key");
  app.add_option("--base", line.base, "Base model: a Hugging Face folder or a .gguf file");
  app.add_option("--variant", line.variants, "A variant, NAME=PATH; may be given several times");
  app.add_option("--watch", line.watch, "A folder whose variants are served as they come and go");
  app.add_option("--listen", line.listen, "ADDRESS:PORT (default 127.0.0.1:8080)");
  app.add_option("--threads", line.threads, "Kernel threads; 0: one a core")->range(0, 1024);
  app.add_option("--device", line.device,
                 "auto, cpu or cuda; auto: a GPU if there is one, else the CPU")
      ->one_of({"auto", "cpu", "cuda"});
  app.add_option("--tensor-parallel-size", line.tensor_parallel,
                 "Ranks that share the base and each variant (default 1)")
      ->range(1, deltad::kMostRanks);
  app.add_flag("--check-config", line.check_only,
               "Say what is wrong with the config, or what would run, and end");
  app.add_version_flag("--version", [] {
    std::string text = std::string("deltad ") + deltad::kVersion;
    for (const std::string& backend : deltad::backend_list(deltad::DeviceChoice::kAuto))
      text += "\n" + backend;
    return text;
  });
  app.add_hidden_text_flag("--man", [&app] {
    return deltad::man_page(app, 8, deltad::kVersion, "deltad.yaml(5), deltactl(1)");
  });
  if (const std::optional<int> code = app.parse(argc, argv)) return *code;
  const auto config = make_config(line);
  if (!config.ok()) return fail(config.status(), 2);
  deltad::set_log_level(config->log_level);
  deltad::set_log_format(config->log_format);
  if (!line.check_only) return serve(line, *config);
  if (const Status status = deltad::check_files(*config); !status.ok()) return fail(status, 2);
  fmt::print("{}", deltad::describe(*config));
  return 0;
}
