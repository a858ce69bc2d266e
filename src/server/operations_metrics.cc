#include "server/operations_metrics.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "base/version.h"

namespace deltad {
namespace {

void one(PrometheusText& out, const char* name, const char* type, const char* help, double value) {
  out.family(name, type, help);
  out.sample({}, value);
}

// In bytes; 0 if the system does not tell.
double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  double all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

double open_files() {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  int count = -3;  // ".", ".." and the one that reads it
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

void render_process(PrometheusText& out) {
  out.family("deltad_build_info", "gauge", "Always 1; what runs.");
  out.sample({{"version", kVersion}}, 1);
  one(out, "process_resident_memory_bytes", "gauge", "Memory of the process.", resident_bytes());
  one(out, "process_cpu_seconds_total", "counter", "Processor time of the process.", cpu_seconds());
  one(out, "process_open_fds", "gauge", "Open files and connections of the process.", open_files());
}

void render_operation(const OperationFigures& figures, const std::optional<SpanCounts>& spans,
                      PrometheusText& out) {
  one(out, "deltad_draining", "gauge", "1 while running requests end and no new ones are taken.",
      figures.draining ? 1 : 0);
  out.family("deltad_config_reloads_total", "counter", "Reloads of the config asked for.");
  out.sample({{"result", "applied"}}, static_cast<double>(figures.reloads));
  out.sample({{"result", "refused"}}, static_cast<double>(figures.refused_reloads));
  one(out, "deltad_config_last_reload_successful", "gauge",
      "1 unless the last reload of the config was refused.", figures.last_reload_ok ? 1 : 0);
  one(out, "deltad_engine_stalled", "gauge",
      "1 while a step of the engine takes longer than the watchdog's bound.",
      figures.stalled ? 1 : 0);
  one(out, "deltad_engine_stalls_total", "counter", "Steps that took longer than that bound.",
      static_cast<double>(figures.stalls));
  if (!spans) return;
  one(out, "deltad_spans_exported_total", "counter", "Spans that the collector took.",
      static_cast<double>(spans->exported));
  out.family("deltad_spans_dropped_total", "counter",
             "Spans lost: queue = it was full, collector = it refused them or was not there.");
  out.sample({{"reason", "queue"}}, static_cast<double>(spans->dropped_full));
  out.sample({{"reason", "collector"}}, static_cast<double>(spans->dropped_failed));
}

}  // namespace deltad
