// What blocks tell one another through device memory: the members of Machine that make it.
#include <string>

#include "tests/support/cuda_on_cpu/machine.h"

namespace deltad::emulator {

void Machine::note_message_store(const void* word) {
  const Thread& self = *current;
  messages_[word] = {self.block->number, self.clock, self.block->races->time(self.clock), 0};
  self.block->unreleased.push_back(word);
}

void Machine::check_message_load(const void* word, Where where) {
  const auto found = messages_.find(word);
  if (found == messages_.end()) return;
  const Thread& self = *current;
  const Message& message = found->second;
  const RaceDetector& races = *self.block->races;
  if (message.block == self.block->number) {
    if (message.thread != self.clock && !races.knows(self.clock, message.thread, message.time)) {
      fail(FaultKind::kRace, self, where,
           [&] { return "no barrier after the store of " + name_of(message.thread); });
    }
    return;
  }
  if (message.stamp == 0) {
    fail(FaultKind::kStale, self, where,
         [&] { return "block " + std::to_string(message.block) + " has not released its store"; });
  }
  if (message.stamp > races.acquired(self.clock)) {
    fail(FaultKind::kStale, self, where, [&] {
      return "the store of block " + std::to_string(message.block) + " was not acquired";
    });
  }
}

void Machine::release_messages(const void* variable) {
  const Thread& self = *current;
  RaceDetector& races = *self.block->races;
  const uint32_t stamp = ++releases_;
  std::erase_if(self.block->unreleased, [&](const void* word) {
    Message& message = messages_[word];
    if (message.block != self.block->number) return true;  // overwritten since
    if (message.thread != self.clock && !races.knows(self.clock, message.thread, message.time)) {
      return false;
    }
    message.stamp = stamp;
    return true;
  });
  variables_[variable] = stamp;
}

void Machine::acquire_messages(const void* variable) {
  const auto found = variables_.find(variable);
  if (found != variables_.end()) current->block->races->acquire(current->clock, found->second);
}

}  // namespace deltad::emulator
