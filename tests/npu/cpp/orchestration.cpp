// Two tasks, the second of which reads what the first makes; how often is read from a tensor.
#include "pto_orchestration_api.h"

extern "C" {

__attribute__((visibility("default"))) PTO2OrchestrationConfig aicpu_orchestration_config(const ChipTaskArgs &args) {
    (void)args;
    return PTO2OrchestrationConfig{
        .expected_arg_count = 3,
    };
}

__attribute__((visibility("default"))) void aicpu_orchestration_entry(const ChipTaskArgs &args) {
    const ChipTensor &in = args.tensor(0).ref();
    const ChipTensor &out = args.tensor(1).ref();
    const ChipTensor &sizes = args.tensor(2).ref();
    uint32_t at[1] = {0};
    const int32_t rounds = get_tensor_data<int32_t>(sizes, 1, at);
    const uint32_t tile[2] = {8, 64};
    TensorCreateInfo info(tile, 2, DataType::FLOAT32);
    for (int32_t i = 0; i < rounds; ++i) {
        PTO2_SCOPE() {
            const uint32_t offsets[2] = {static_cast<uint32_t>(8 * i), 0};
            ChipTensor source = in.view(tile, offsets), target = out.view(tile, offsets);
            CoreTaskArgs one;
            one.add_input(source);
            one.add_output(info);
            one.add_scalar(2.0f);
            TaskOutputTensors made = rt_submit_aiv_task(0, one);
            CoreTaskArgs two;
            two.add_input(made.get_ref(0));
            two.add_output(target);
            two.add_scalar(args.scalar(0));
            rt_submit_aiv_task(0, two);
        }
    }
}

// the same as a recorded graph: a function that submits, and a number that it is given besides
static void layer(const GraphTaskArgs &args, int rounds) {
    for (int i = 0; i < rounds; ++i) {
        CoreTaskArgs one;
        one.add_input(args.tensor(0).ref());
        one.add_output(args.tensor(1).ref());
        one.add_scalar(args.scalar(0));
        rt_submit_aiv_task(0, one);
    }
}

__attribute__((visibility("default"))) void graph(const ChipTaskArgs &args) {
    GraphTaskArgs given;
    given.add_input(args.tensor(0).ref());
    given.add_output(args.tensor(1).ref());
    given.add_scalar(3.0f);
    rt_submit_graph(&layer, given, 1);
}

// numbers of 64 bits: one is read, half of it and the whole are written, and a tensor of such is made
__attribute__((visibility("default"))) void wide(const ChipTaskArgs &args) {
    const ChipTensor &numbers = args.tensor(0).ref();
    uint32_t at[1] = {1};
    const int64_t found = get_tensor_data<int64_t>(numbers, 1, at);
    at[0] = 2;
    set_tensor_data<int64_t>(numbers, 1, at, numbers.data_as<int64_t>()[0] + found);
    const uint32_t shape[1] = {numbers.shapes[0]};
    TensorCreateInfo info(shape, 1, DataType::INT64);
    info.set_initial_value<int64_t>(-1);
    TaskOutputTensors made = alloc_tensors(info);
    at[0] = 3;
    set_tensor_data<int64_t>(numbers, 1, at, get_tensor_data<int64_t>(made.get_ref(0), 1, at));
}

}  // extern "C"
