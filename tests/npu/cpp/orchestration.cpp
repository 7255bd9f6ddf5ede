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

}  // extern "C"
