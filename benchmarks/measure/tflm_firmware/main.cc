// TensorFlow Lite Micro on a board in QEMU: runs a model three times and prints what the last run executed.
#include <cstdint>
#include <cstdio>

#include "tensorflow/lite/micro/kernels/add.h"
#include "tensorflow/lite/micro/kernels/batch_matmul.h"
#include "tensorflow/lite/micro/kernels/conv.h"
#include "tensorflow/lite/micro/kernels/depthwise_conv.h"
#include "tensorflow/lite/micro/kernels/fully_connected.h"
#include "tensorflow/lite/micro/kernels/maximum_minimum.h"
#include "tensorflow/lite/micro/kernels/mul.h"
#include "tensorflow/lite/micro/kernels/pad.h"
#include "tensorflow/lite/micro/kernels/pooling.h"
#include "tensorflow/lite/micro/kernels/softmax.h"
#include "tensorflow/lite/micro/kernels/svdf.h"
#include "tensorflow/lite/micro/kernels/transpose.h"
#include "tensorflow/lite/micro/kernels/transpose_conv.h"
#include "tensorflow/lite/micro/kernels/unidirectional_sequence_lstm.h"
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
constexpr int kOperators = 64;
constexpr int kVariables = 20;
alignas(16) std::uint8_t arena[512 * 1024];
}  // namespace

int main() {
  static tflite::MicroMutableOpResolver<kOperators> resolver;
#include "operators.inc"
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
