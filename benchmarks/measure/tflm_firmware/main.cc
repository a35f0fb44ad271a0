// TensorFlow Lite Micro on a Cortex-M4 in QEMU: runs a model three times and prints what the last run executed.
#include <cstdint>
#include <cstdio>

#include "tensorflow/lite/micro/micro_allocator.h"
#include "tensorflow/lite/micro/micro_interpreter.h"
#include "tensorflow/lite/micro/micro_mutable_op_resolver.h"
#include "tensorflow/lite/micro/micro_resource_variable.h"
#include "tensorflow/lite/schema/schema_generated.h"

extern "C" {
extern const unsigned char model_data[];
std::uint32_t timer_now(void);
void say(const char *text);
}

namespace {
constexpr int kRuns = 3;
constexpr int kOperators = 18;
constexpr int kVariables = 20;
alignas(16) std::uint8_t arena[512 * 1024];
}  // namespace

int main() {
  static tflite::MicroMutableOpResolver<kOperators> resolver;
  resolver.AddAssignVariable();
  resolver.AddAveragePool2D();
  resolver.AddCallOnce();
  resolver.AddConcatenation();
  resolver.AddConv2D();
  resolver.AddDepthwiseConv2D();
  resolver.AddFullyConnected();
  resolver.AddLogistic();
  resolver.AddMaxPool2D();
  resolver.AddMean();
  resolver.AddPad();
  resolver.AddQuantize();
  resolver.AddReadVariable();
  resolver.AddReshape();
  resolver.AddSoftmax();
  resolver.AddSplitV();
  resolver.AddStridedSlice();
  resolver.AddVarHandle();
  tflite::MicroAllocator *allocator = tflite::MicroAllocator::Create(arena, sizeof arena);
  tflite::MicroResourceVariables *variables = tflite::MicroResourceVariables::Create(allocator, kVariables);
  static tflite::MicroInterpreter interpreter(tflite::GetModel(model_data), resolver, allocator, variables);
  if (interpreter.AllocateTensors() != kTfLiteOk) {
    say("FAIL tensors\n");
    return 1;
  }
  std::uint32_t random = 1;
  std::uint32_t ticks = 0;
  for (int run = 0; run < kRuns; ++run) {
    TfLiteTensor *input = interpreter.input(0);
    for (std::size_t i = 0; i < input->bytes; ++i) {
      random = random * 1664525u + 1013904223u;
      input->data.uint8[i] = static_cast<std::uint8_t>(random >> 24);
    }
    const std::uint32_t begin = timer_now();
    if (interpreter.Invoke() != kTfLiteOk) {
      say("FAIL a run\n");
      return 1;
    }
    ticks = timer_now() - begin;
  }
  char text[80];
  std::snprintf(text, sizeof text, "ticks=%lu arena=%lu\n", static_cast<unsigned long>(ticks),
                static_cast<unsigned long>(interpreter.arena_used_bytes()));
  say(text);
  return 0;
}
