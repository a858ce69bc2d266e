// What the scheduler promises, over random traces: nobody starves, weights are respected, no room
// stays idle, urgent classes go first.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "tests/unit/engine/simulation.h"

namespace deltad {
namespace {

using testing::Arrival;
using testing::Costs;
using testing::make_variant;
using testing::Simulation;

constexpr double kAge = 2;

std::vector<VariantRef> named_variants(uint32_t count) {
  std::vector<VariantRef> out{nullptr};
  for (uint32_t v = 1; v < count; ++v) out.push_back(make_variant(v, "v" + std::to_string(v)));
  return out;
}

class RandomTrace {
 public:
  explicit RandomTrace(uint32_t seed) : random_(seed) {
    options_.age_seconds = kAge;
    options_.step_seconds = 1000;  // rows are the only bound of a step
    options_.max_step_rows = 16 << below(5);
    options_.max_running = 4 << below(6);
    const uint32_t tenants = 2 + static_cast<uint32_t>(below(12));
    for (uint32_t v = 1; v < tenants; v += 2)
      options_.weights.variants["v" + std::to_string(v)] = 0.25 * (1 << below(5));
    simulation_ = std::make_unique<Simulation>(options_, Costs(), 1 << 14, named_variants(tenants));
    const double end = 10 + below(10), rate = 20 + below(100);
    std::exponential_distribution<double> gap(rate);
    const bool classes = below(2) == 0;
    for (double at = gap(random_); at < end; at += gap(random_)) {
      const auto hot = below(2) == 0 ? 1u : tenants;  // half of all for one
      trace_.push_back({at, static_cast<size_t>(below(static_cast<int32_t>(hot))),
                        1 + below(1 << below(10)), 1 + below(1 << below(7)),
                        classes ? below(3) : 0});
    }
  }

  void run() {
    simulation_->model.before_step = [this](const Batch& batch) { check(batch); };
    simulation_->run(trace_);
    EXPECT_EQ(simulation_->finished, simulation_->submitted);
    // There is memory for all, so places alone are taken: one, once, by each.
    preemptions = simulation_->core.stats().preemptions;
    EXPECT_LE(preemptions, static_cast<uint64_t>(simulation_->submitted));
  }

  int64_t overdue = 0, full = 0, urgent_first = 0;
  uint64_t preemptions = 0;

 private:
  int32_t below(int32_t n) { return static_cast<int32_t>(random_() % static_cast<uint32_t>(n)); }

  // Between the plan and its commit.
  void check(const Batch& batch) {
    const SchedulerState& state = simulation_->core.state();
    // A step's room is full, or all that could go on does: chunks end where blocks end.
    const auto rows = static_cast<int32_t>(batch.ids.size());
    if (rows <= options_.max_step_rows - 16) {
      for (const Sequence* s : state.running) EXPECT_FALSE(s->left_rows) << "room left";
      if (static_cast<int32_t>(state.running.size()) < options_.max_running) {
        EXPECT_TRUE(state.waiting.empty()) << "a place is left, and somebody waits";
      }
    } else {
      ++full;
    }
    // Nobody's prompts stand still for longer than the age bound and the time in which those that
    // are overdue get places: all that runs ends, as often as it takes, at half a step's rows.
    const int32_t flows = 3 * static_cast<int32_t>(options_.weights.variants.size() * 2 + 2);
    const int32_t rounds = 2 + flows / options_.max_running;
    const double steps =
        rounds * options_.max_running * 640.0 / (options_.max_step_rows / 2.0) + flows;
    const double bound = kAge + simulation_->model.longest * steps;
    for (const Flow* flow : state.waiting.by_age()) {
      const double stands = seconds(state.now - flow->since);
      EXPECT_LE(stands, bound);
      overdue += stands > kAge;
    }
    // Whom this step admitted, nobody more urgent was passed over, but for one that was overdue.
    int passed = 0;
    for (const Sequence* s : state.running) {
      if (s->admission <= admissions_) continue;
      const auto& classes = state.waiting.classes();
      for (auto at = classes.begin(); at != classes.end() && at->first < s->request.priority; ++at)
        if (!at->second.waiting.empty()) {
          ++passed;
          break;
        }
      ++urgent_first;
    }
    EXPECT_LE(passed, 1) << "a less urgent one was admitted first";
    for (const Sequence* s : state.running) admissions_ = std::max(admissions_, s->admission);
  }

  std::mt19937 random_;
  SchedulerOptions options_;
  std::vector<Arrival> trace_;
  std::unique_ptr<Simulation> simulation_;
  uint64_t admissions_ = 0;
};

TEST(SchedulingProperties, HoldOverRandomTraces) {
  int64_t overdue = 0, full = 0, urgent_first = 0;
  uint64_t preemptions = 0;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    RandomTrace trace(seed);
    trace.run();
    ASSERT_FALSE(HasFailure());
    overdue += trace.overdue;
    full += trace.full;
    urgent_first += trace.urgent_first;
    preemptions += trace.preemptions;
  }
  // Else the traces test less than they should.
  EXPECT_GT(overdue, 100);
  EXPECT_GT(full, 1000);
  EXPECT_GT(urgent_first, 1000);
  EXPECT_GT(preemptions, 100u);
}

// Flows that always want more get tokens by weight, over any window of time.
TEST(SchedulingProperties, TokensFollowWeightsOverAnyWindow) {
  for (uint32_t seed = 0; seed < 4; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](int32_t n) {
      return static_cast<int32_t>(random() % static_cast<uint32_t>(n));
    };
    constexpr uint32_t kFlows = 5;
    SchedulerOptions options;
    options.max_step_rows = 32 << below(3);
    options.max_running = 8 << below(3);
    options.age_seconds = 1e6;
    std::vector<double> weights{1};
    for (uint32_t v = 1; v < kFlows; ++v) {
      weights.push_back(0.5 * (1 << below(4)));
      options.weights.variants["v" + std::to_string(v)] = weights.back();
    }
    const int32_t most_output = 1 + below(60);
    std::vector<Arrival> trace;
    for (size_t t = 0; t < kFlows; ++t)
      for (int i = 0; i < 2000; ++i)
        trace.push_back({0, t, 1 + below(200), 1 + below(most_output), 0});
    Simulation simulation(options, Costs(), 1 << 14, named_variants(kFlows));
    std::map<RequestHandle, int32_t> charged;
    std::vector<double> served(kFlows);
    std::vector<std::vector<double>> history;
    simulation.model.before_step = [&](const Batch&) {
      for (const Sequence* s : simulation.core.state().running) {
        const auto tenant = s->variant() == nullptr
                                ? size_t{0}
                                : static_cast<size_t>(std::stoi(s->variant()->name.substr(1)));
        served[tenant] += s->charged - charged[s->handle];
        charged[s->handle] = s->charged;
      }
      history.push_back(served);
    };
    simulation.run(trace, 60);
    ASSERT_EQ(simulation.core.state().waiting.by_age().size(), kFlows) << "all still want more";
    // 2 (L + M) / the smaller weight (fair_queue.h).
    const double most = options.max_step_rows + options.max_running * (200.0 + most_output);
    double widest = 0;
    for (size_t a = 0; a < kFlows; ++a)
      for (size_t b = 0; b < kFlows; ++b) {
        // The widest window difference is that of the highest and the lowest point of the curve.
        double low = 1e300, rise = 0;
        for (const auto& at : history) {
          const double lead = at[a] / weights[a] - at[b] / weights[b];
          low = std::min(low, lead);
          rise = std::max(rise, lead - low);
        }
        EXPECT_LE(rise, 2 * most / std::min(weights[a], weights[b]));
        widest = std::max(widest, rise * std::min(weights[a], weights[b]) / (2 * most));
      }
    RecordProperty("of_bound_percent_" + std::to_string(seed), static_cast<int>(100 * widest));
    // And in the long run by far more exactly than that.
    const double mean = history.back()[0] / weights[0];
    for (size_t t = 1; t < kFlows; ++t)
      EXPECT_NEAR(history.back()[t] / weights[t], mean, most / weights[t]);
  }
}

}  // namespace
}  // namespace deltad
