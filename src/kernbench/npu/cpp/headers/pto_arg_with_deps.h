// Arguments of a task that hold the tasks it waits for.
#pragma once

#include "pto_orchestration_api.h"

template <size_t MAX_DEP_COUNT = 16> class CoreTaskArgsWithDeps : public CoreTaskArgs {
  public:
    template <class... Ids> void add_dep(Ids... ids) { (add_one(ids), ...); }
    template <class... Ids> void add_dep_wait(Ids... ids) { (add_one(ids), ...); }
    void reset() {
        CoreTaskArgs::reset();
        count_ = 0;
    }
    CoreTaskArgs &finalize_for_submit() {
        set_dependencies(nullptr, 0);
        set_dependencies(deps_, count_);
        return *this;
    }

  private:
    void add_one(PTO2TaskId id) {
        if (count_ >= MAX_DEP_COUNT) return set_error("add_dep: more tasks than MAX_DEP_COUNT");
        deps_[count_++] = id;
    }
    PTO2TaskId deps_[MAX_DEP_COUNT];
    uint32_t count_ = 0;
};

template <size_t N>
inline TaskOutputTensors rt_submit_task(const MixedKernels &kernels, CoreTaskArgsWithDeps<N> &args, KB_AT) {
    return rt_submit_task(kernels, args.finalize_for_submit(), kb_file, kb_line, kb_function);
}
template <size_t N> inline TaskOutputTensors rt_submit_aic_task(int32_t kernel, CoreTaskArgsWithDeps<N> &args, KB_AT) {
    return rt_submit_aic_task(kernel, args.finalize_for_submit(), kb_file, kb_line, kb_function);
}
template <size_t N> inline TaskOutputTensors rt_submit_aiv_task(int32_t kernel, CoreTaskArgsWithDeps<N> &args, KB_AT) {
    return rt_submit_aiv_task(kernel, args.finalize_for_submit(), kb_file, kb_line, kb_function);
}
template <size_t N> inline TaskOutputTensors rt_submit_dummy_task(CoreTaskArgsWithDeps<N> &args, KB_AT) {
    return rt_submit_dummy_task(args.finalize_for_submit(), kb_file, kb_line, kb_function);
}
