// What an orchestration calls: tasks with their arguments, scopes, tensors the runtime makes, and single values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <type_traits>

#include "kernbench/machine.h"
#include "tensor.h"

constexpr size_t MAX_TENSOR_ARGS = 32, MAX_SCALAR_ARGS = 16;
constexpr size_t CHIP_MAX_TENSOR_ARGS = 256, CHIP_MAX_SCALAR_ARGS = 256;
constexpr int32_t INVALID_KERNEL_ID = -1;

enum class TensorArgType : int32_t { INPUT = 0, OUTPUT = 1, INOUT = 2, OUTPUT_EXISTING = 3, NO_DEP = 4 };
enum class PTO2ScopeMode : uint8_t { AUTO = 0, MANUAL = 1 };
enum class PredicateOp : uint8_t { NONE = 0, EQ, NE, GT, LT, GE, LE };
enum DepFlags : uint8_t { DEP_NONE = 0, DEP_WAIT = 1, DEP_RETAIN = 2 };
constexpr DepFlags operator|(DepFlags a, DepFlags b) {
    return static_cast<DepFlags>(static_cast<uint8_t>(a) | static_cast<uint8_t>(b));
}

#define PTO2_ERROR_INVALID_ARGS 5
#define PTO2_ERROR_EXPLICIT_ORCH_FATAL 9

struct MixedKernels {
    int32_t aic_kernel_id{INVALID_KERNEL_ID}, aiv0_kernel_id{INVALID_KERNEL_ID}, aiv1_kernel_id{INVALID_KERNEL_ID};
};

class PTO2LaunchSpec {
  public:
    int16_t block_num() const { return block_num_; }
    void set_block_num(int16_t count) { block_num_ = count; }
    void set_core_num(int16_t count) { block_num_ = count; }
    void set_block_count(int16_t count) { block_num_ = count; }
    bool require_sync_start() const { return sync_start_; }
    void set_require_sync_start(bool wanted) { sync_start_ = wanted; }

  private:
    int16_t block_num_{1};
    bool sync_start_{false};
};

struct TensorCreateInfo {
    uint64_t initial_value{0};
    bool has_initial_value{false}, manual_dep{false};
    DataType dtype{DataType::FLOAT32};
    uint32_t ndims{0}, shapes[MAX_TENSOR_DIMS]{};

    TensorCreateInfo() = default;
    TensorCreateInfo(const uint32_t sizes[], uint32_t count, DataType type = DataType::FLOAT32, bool manual = false)
        : manual_dep(manual), dtype(type), ndims(count) {
        for (uint32_t i = 0; i < count && i < MAX_TENSOR_DIMS; ++i) shapes[i] = sizes[i];
    }
    void copy(const TensorCreateInfo &other) { *this = other; }
    template <class T = uint64_t> void set_initial_value(T value) {
        has_initial_value = true;
        initial_value = to_u64(value);
    }
    uint64_t buffer_size_bytes() const {
        uint64_t bytes = get_element_size(dtype);
        for (uint32_t i = 0; i < ndims; ++i) bytes *= shapes[i];
        return bytes;
    }
};

class TaskOutputTensors {
  public:
    TaskOutputTensors() = default;
    bool empty() const { return count_ == 0; }
    uint32_t size() const { return count_; }
    const ChipTensor &get_ref(uint32_t index) const { return tensors_[index]; }
    PTO2TaskId task_id() const { return task_id_; }

    PTO2TaskId task_id_ = PTO2TaskId::invalid();
    uint32_t count_ = 0;
    // held for as long as the orchestration runs, so that references to it stay good
    ChipTensor *tensors_ = nullptr;
};

class TensorRef {
  public:
    TensorRef &operator=(const ChipTensor *tensor) { tensor_ = tensor; return *this; }
    TensorRef &operator=(const TensorCreateInfo *info) { info_ = info; return *this; }
    const ChipTensor &ref() const { return *tensor_; }
    const TensorCreateInfo &create_info() const { return *info_; }

  private:
    const ChipTensor *tensor_ = nullptr;
    const TensorCreateInfo *info_ = nullptr;
};

struct CorePredicateOperand {
    const ChipTensor *tensor{nullptr};
    uint32_t ndims{0}, indices[MAX_TENSOR_DIMS]{};
};
struct CoreTaskPredicate {
    CorePredicateOperand operand;
    PredicateOp op{PredicateOp::NONE};
    int64_t target{0};
};

template <size_t MaxT, size_t MaxS> struct Arg {
    Arg() = default;
    Arg(const Arg &) = delete;
    Arg &operator=(const Arg &) = delete;

    bool has_error{false};
    const char *error_msg{nullptr};
    PTO2LaunchSpec launch_spec;

    void set_allow_early_resolve(bool wanted = true) { early_ = wanted; }
    bool allow_early_resolve() const { return early_; }
    void set_predicate(const CoreTaskPredicate &predicate) { predicate_ = predicate; }
    const CoreTaskPredicate &predicate() const { return predicate_; }
    void set_task_timing_slot(int32_t) {}
    int32_t task_timing_slot() const { return -1; }
    template <class... T> void dump(T &&...) {}

    void clear() {
        tensor_count_ = scalar_count_ = 0;
        deps_ = nullptr, dep_count_ = 0;
        early_ = false;
        predicate_ = CoreTaskPredicate{};
    }
    void reset() {
        clear();
        has_error = false, error_msg = nullptr;
    }
    void set_error(const char *message) {
        if (!has_error) has_error = true, error_msg = message;
    }

    template <class... T> void add_input(T &&...given) { (add(&given, TensorArgType::INPUT), ...); }
    template <class... T> void add_inout(T &&...given) { (add(&given, TensorArgType::INOUT), ...); }
    template <class... T> void add_no_dep(T &&...given) { (add(&given, TensorArgType::NO_DEP), ...); }
    template <class... T> void add_output(T &&...given) {
        (add(&given, std::is_same_v<std::decay_t<T>, TensorCreateInfo> ? TensorArgType::OUTPUT
                                                                       : TensorArgType::OUTPUT_EXISTING), ...);
    }
    template <class... T> void add_scalar(T &&...given) { (add_number(to_u64(given)), ...); }
    void add_scalars(const uint64_t *values, int count) {
        for (int i = 0; i < count; ++i) add_number(values[i]);
    }
    void add_scalars_i32(const int32_t *values, int count) {
        for (int i = 0; i < count; ++i) add_number(static_cast<uint32_t>(values[i]));
    }
    void copy_scalars_from(const Arg &other, int first, int count) {
        for (int i = 0; i < count; ++i) add_number(other.scalars_[first + i]);
    }
    void set_dependencies(const PTO2TaskId *deps, uint32_t count) {
        if (count && deps_) set_error("set_dependencies: may be called once for each set of arguments");
        deps_ = count ? deps : nullptr, dep_count_ = count;
    }
    void set_dependencies_with_kinds(const PTO2TaskId *deps, const DepFlags *, uint32_t count) {
        set_dependencies(deps, count);
    }
    uint32_t explicit_dep_count() const { return dep_count_; }
    PTO2TaskId explicit_dep(uint32_t index) const { return deps_[index]; }

    int32_t tensor_count() const { return tensor_count_; }
    int32_t scalar_count() const { return scalar_count_; }
    const TensorRef &tensor(int32_t index) const { return tensors_[index]; }
    uint64_t scalar(int32_t index) const { return scalars_[index]; }
    TensorArgType tag(int32_t index) const { return tags_[index]; }

  private:
    template <class T> void add(const T *given, TensorArgType tag) {
        if (scalar_count_) return set_error("tensors are added before scalars");
        if (tensor_count_ >= static_cast<int32_t>(MaxT)) return set_error("too many tensors");
        tensors_[tensor_count_] = given, tags_[tensor_count_++] = tag;
    }
    void add_number(uint64_t bits) {
        if (scalar_count_ >= static_cast<int32_t>(MaxS)) return set_error("too many scalars");
        scalars_[scalar_count_++] = bits;
    }
    int32_t tensor_count_ = 0, scalar_count_ = 0;
    TensorRef tensors_[MaxT];
    TensorArgType tags_[MaxT];
    uint64_t scalars_[MaxS];
    const PTO2TaskId *deps_ = nullptr;
    uint32_t dep_count_ = 0;
    bool early_ = false;
    CoreTaskPredicate predicate_;
};

using CoreTaskArgs = Arg<MAX_TENSOR_ARGS, MAX_SCALAR_ARGS>;
struct ChipTaskArgs : Arg<CHIP_MAX_TENSOR_ARGS, CHIP_MAX_SCALAR_ARGS> {};
using GraphTaskArgs = ChipTaskArgs;

#include "kernbench/submits.h"

// Scopes

inline void rt_scope_begin(PTO2ScopeMode mode = PTO2ScopeMode::AUTO, KB_AT) {
    kb::operate("scope_begin", KB_HERE, mode);
}
inline void rt_scope_end(KB_AT) { kb::operate("scope_end", KB_HERE); }
inline void rt_orchestration_done() {}

class PTO2ScopeGuard {
  public:
    explicit PTO2ScopeGuard(PTO2ScopeMode mode = PTO2ScopeMode::AUTO, KB_AT) : site_(KB_HERE) {
        kb::operate("scope_begin", site_, mode);
    }
    ~PTO2ScopeGuard() { kb::operate("scope_end", site_); }

  private:
    uint32_t site_;
};

#define KB_JOIN_(a, b) a##b
#define KB_JOIN(a, b) KB_JOIN_(a, b)
#define PTO2_SCOPE_GUARD(...) [[maybe_unused]] PTO2ScopeGuard KB_JOIN(kb_scope_, __COUNTER__){__VA_ARGS__}
#define PTO2_SCOPE(...) if (PTO2ScopeGuard KB_JOIN(kb_scope_, __COUNTER__){__VA_ARGS__}; true)

// Recorded graphs. A function that submits tasks is recorded once and submitted as a whole from then on, which saves time
// in the reference and changes nothing in what is submitted: here it is called each time.

struct GraphSubmitResult {};
template <class... Given>
inline GraphSubmitResult rt_submit_graph(void (*function)(const GraphTaskArgs &, Given...), const GraphTaskArgs &args,
                                         std::common_type_t<Given>... given) {
    function(args, given...);
    return {};
}
template <class... Given>
inline GraphSubmitResult rt_submit_graph(uint64_t, void (*function)(const GraphTaskArgs &, Given...),
                                         const GraphTaskArgs &args, std::common_type_t<Given>... given) {
    function(args, given...);
    return {};
}

// What else a program asks or reports

inline int32_t rt_available_cluster_count(KB_AT) { return kb::ask<int32_t>("clusters", KB_HERE); }
inline int32_t rt_available_aiv_count(KB_AT) { return kb::ask<int32_t>("aivs", KB_HERE); }
inline bool rt_is_fatal() { return false; }

template <class... Given>
inline void kb_fatal(const char *file, int line, const char *function, int code, const char *format, Given... given) {
    char text[400];
    std::snprintf(text, sizeof text, format, given...);
    kb_record("fatal", kb_site(file, line, function), text, static_cast<uint32_t>(std::strlen(text)));
    (void)code;
}
#define rt_report_fatal(code, ...) kb_fatal(__FILE__, __LINE__, __FUNCTION__, code, __VA_ARGS__)
template <class... Given> inline void kb_log(Given &&...) {}
#define LOG_ERROR(...) kb_log(__VA_ARGS__)
#define LOG_WARN(...) kb_log(__VA_ARGS__)
#define LOG_TIMING(...) kb_log(__VA_ARGS__)
#define LOG_INFO(...) kb_log(__VA_ARGS__)
#define LOG_DEBUG(...) kb_log(__VA_ARGS__)

struct PTO2OrchestrationConfig {
    int expected_arg_count;
};

// how the host program calls an orchestration
extern "C" __attribute__((visibility("default"), weak)) void kb_orchestrate(
    void *entry, const ChipTensor *tensors, int count, const uint64_t *scalars, int numbers) {
    ChipTaskArgs given;
    for (int i = 0; i < count; ++i) given.add_input(tensors[i]);
    for (int i = 0; i < numbers; ++i) given.add_scalar(scalars[i]);
    reinterpret_cast<void (*)(const ChipTaskArgs &)>(entry)(given);
}

#include "pto_arg_with_deps.h"
