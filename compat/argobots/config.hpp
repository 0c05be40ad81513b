#pragma once

#include <cstdint>
#include <map>

#include "runtime.hpp"

namespace amalgam::argobots {

/// An int, double or pointer. Types of schedulers' and pools' settings have the same numbers.
struct setting {
    int type = ABT_SCHED_CONFIG_INT;
    std::uint64_t value = 0;
    void write(void* to) const noexcept;
};

/// Settings by key.
class settings {
public:
    /// From null: removes it. Throws failure for an unknown type.
    void set(int key, int type, const void* from);
    const setting* find(int key) const noexcept;
    int int_or(int key, int otherwise) const noexcept;

private:
    std::map<int, setting> values_;
};

}  // namespace amalgam::argobots

struct ABT_sched_config_opaque {
    amalgam::argobots::settings all;
};
struct ABT_pool_config_opaque {
    amalgam::argobots::settings all;
};
