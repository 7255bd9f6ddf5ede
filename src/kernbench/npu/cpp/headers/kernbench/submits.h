// Submits: what a task is given goes out as words, the tensors that the runtime made come back.
#pragma once

#include <vector>

namespace kb {

struct SubmitWords {
    int32_t kernels[3];
    int32_t blocks;
    uint8_t sync_start, early, predicate, verb;
    uint32_t tensors, scalars, deps;
    int64_t target;
};
// one tensor of a task, or one that is to be made
struct GivenWords {
    uint64_t address, bytes, start, initial;
    uint8_t dtype, tag, filled, manual;
    uint32_t ndims, shapes[5], strides[5];
};

inline GivenWords given(const ChipTensor &tensor, TensorArgType tag) {
    GivenWords words{};
    words.address = tensor.buffer.addr, words.bytes = tensor.buffer.size, words.start = tensor.start_offset;
    words.dtype = static_cast<uint8_t>(tensor.dtype), words.tag = static_cast<uint8_t>(tag), words.ndims = tensor.ndims;
    words.manual = tensor.manual_dep;
    for (uint32_t i = 0; i < 5; ++i) words.shapes[i] = tensor.shapes[i], words.strides[i] = tensor.strides[i];
    return words;
}

inline GivenWords given(const TensorCreateInfo &info) {
    GivenWords words{};
    words.dtype = static_cast<uint8_t>(info.dtype), words.tag = static_cast<uint8_t>(TensorArgType::OUTPUT);
    words.ndims = info.ndims, words.filled = info.has_initial_value, words.initial = info.initial_value;
    words.manual = info.manual_dep;
    for (uint32_t i = 0; i < 5; ++i) words.shapes[i] = info.shapes[i];
    return words;
}

enum Verb : uint8_t { SUBMIT, DUMMY, ALLOCATE };

template <class Args> TaskOutputTensors submit(Verb verb, const MixedKernels &kernels, const Args &args, uint32_t site) {
    SubmitWords head{};
    head.kernels[0] = kernels.aic_kernel_id, head.kernels[1] = kernels.aiv0_kernel_id;
    head.kernels[2] = kernels.aiv1_kernel_id, head.blocks = args.launch_spec.block_num(), head.verb = verb;
    head.sync_start = args.launch_spec.require_sync_start(), head.early = args.allow_early_resolve();
    const CoreTaskPredicate &predicate = args.predicate();
    head.predicate = static_cast<uint8_t>(predicate.op), head.target = predicate.target;
    head.tensors = args.tensor_count(), head.scalars = args.scalar_count(), head.deps = args.explicit_dep_count();
    std::vector<char> words;
    const auto put = [&words](const auto &one) {
        const char *from = reinterpret_cast<const char *>(&one);
        words.insert(words.end(), from, from + sizeof one);
    };
    put(head);
    uint32_t made = 0;
    std::vector<const TensorCreateInfo *> infos;
    for (int32_t i = 0; i < args.tensor_count(); ++i) {
        const bool is_made = args.tag(i) == TensorArgType::OUTPUT;
        put(is_made ? given(args.tensor(i).create_info()) : given(args.tensor(i).ref(), args.tag(i)));
        if (is_made) infos.push_back(&args.tensor(i).create_info()), ++made;
    }
    for (int32_t i = 0; i < args.scalar_count(); ++i) put(args.scalar(i));
    for (uint32_t i = 0; i < args.explicit_dep_count(); ++i) put(args.explicit_dep(i).raw);
    if (predicate.op != PredicateOp::NONE) {
        ChipTensor element = *predicate.operand.tensor;
        element.start_offset = element.compute_flat_offset(predicate.operand.indices, predicate.operand.ndims);
        put(given(element, TensorArgType::INPUT));
    }
    if (args.has_error) {
        const char *why = args.error_msg ? args.error_msg : "wrong arguments";
        kb_record("fatal", site, why, static_cast<uint32_t>(std::strlen(why)));
    }
    std::vector<uint64_t> answer(2 + made);
    kb_ask("submit", site, words.data(), static_cast<uint32_t>(words.size()), answer.data(),
           static_cast<uint32_t>(answer.size() * 8));
    TaskOutputTensors found;
    found.task_id_.raw = answer[0];
    found.count_ = made;
    found.tensors_ = made ? new ChipTensor[made] : nullptr;
    for (uint32_t i = 0; i < made; ++i) {
        found.tensors_[i].init_external(reinterpret_cast<void *>(answer[2 + i]), infos[i]->buffer_size_bytes(),
                                        infos[i]->shapes, infos[i]->ndims, infos[i]->dtype, 0, infos[i]->manual_dep);
        found.tensors_[i].owner_task_id = found.task_id_;
    }
    return found;
}

}  // namespace kb

inline TaskOutputTensors rt_submit_task(const MixedKernels &kernels, const CoreTaskArgs &args, KB_AT) {
    return kb::submit(kb::SUBMIT, kernels, args, KB_HERE);
}
inline TaskOutputTensors rt_submit_aic_task(int32_t kernel, const CoreTaskArgs &args, KB_AT) {
    MixedKernels kernels;
    kernels.aic_kernel_id = kernel;
    return kb::submit(kb::SUBMIT, kernels, args, KB_HERE);
}
inline TaskOutputTensors rt_submit_aiv_task(int32_t kernel, const CoreTaskArgs &args, KB_AT) {
    MixedKernels kernels;
    kernels.aiv0_kernel_id = kernel;
    return kb::submit(kb::SUBMIT, kernels, args, KB_HERE);
}
inline TaskOutputTensors rt_submit_dummy_task(const CoreTaskArgs &args, KB_AT) {
    return kb::submit(kb::DUMMY, MixedKernels{}, args, KB_HERE);
}
inline TaskOutputTensors alloc_tensors(const CoreTaskArgs &args, KB_AT) {
    return kb::submit(kb::ALLOCATE, MixedKernels{}, args, KB_HERE);
}
inline TaskOutputTensors alloc_tensors(const TensorCreateInfo infos[], uint32_t count, KB_AT) {
    CoreTaskArgs args;
    for (uint32_t i = 0; i < count; ++i) args.add_output(infos[i]);
    return kb::submit(kb::ALLOCATE, MixedKernels{}, args, KB_HERE);
}
#define KB_INFO const TensorCreateInfo &
inline TaskOutputTensors alloc_tensors(KB_INFO a, KB_AT) {
    CoreTaskArgs args;
    args.add_output(a);
    return kb::submit(kb::ALLOCATE, MixedKernels{}, args, KB_HERE);
}
inline TaskOutputTensors alloc_tensors(KB_INFO a, KB_INFO b, KB_AT) {
    CoreTaskArgs args;
    args.add_output(a, b);
    return kb::submit(kb::ALLOCATE, MixedKernels{}, args, KB_HERE);
}
inline TaskOutputTensors alloc_tensors(KB_INFO a, KB_INFO b, KB_INFO c, KB_AT) {
    CoreTaskArgs args;
    args.add_output(a, b, c);
    return kb::submit(kb::ALLOCATE, MixedKernels{}, args, KB_HERE);
}
inline TaskOutputTensors alloc_tensors(KB_INFO a, KB_INFO b, KB_INFO c, KB_INFO d, KB_AT) {
    CoreTaskArgs args;
    args.add_output(a, b, c, d);
    return kb::submit(kb::ALLOCATE, MixedKernels{}, args, KB_HERE);
}
// more than four have no room for the location of the call: it is that of the last record before it
template <class... More>
inline TaskOutputTensors alloc_tensors(KB_INFO a, KB_INFO b, KB_INFO c, KB_INFO d, KB_INFO e, const More &...more) {
    CoreTaskArgs args;
    args.add_output(a, b, c, d, e);
    (args.add_output(more), ...);
    return kb::submit(kb::ALLOCATE, MixedKernels{}, args, 0);
}
#undef KB_INFO

// Single values

template <class T = uint64_t>
inline T get_tensor_data(const ChipTensor &tensor, uint32_t ndims, const uint32_t indices[], KB_AT) {
    ChipTensor element = tensor;
    element.start_offset = tensor.compute_flat_offset(indices, ndims);
    const kb::GivenWords words = kb::given(element, TensorArgType::INPUT);
    uint64_t answer = 0;
    kb_ask("read", KB_HERE, &words, sizeof words, &answer, sizeof answer);
    return from_u64<T>(answer);
}
template <class T = uint64_t>
inline void set_tensor_data(const ChipTensor &tensor, uint32_t ndims, const uint32_t indices[], T value, KB_AT) {
    ChipTensor element = tensor;
    element.start_offset = tensor.compute_flat_offset(indices, ndims);
    kb::GivenWords words = kb::given(element, TensorArgType::INOUT);
    words.initial = to_u64(value);
    kb_record("write", KB_HERE, &words, sizeof words);
}
