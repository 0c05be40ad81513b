#include <atomic>

#include <amalgam/tasks/extension/cpu_relax.hpp>

#include "runtime.hpp"

using namespace amalgam::argobots;

struct ABT_key_opaque {
    std::uint64_t id;
    void (*destroy)(void*);
};

namespace {

std::atomic<std::uint64_t> next_key{1};

/// Others may set a ULT's values while it runs.
class locked_values {
public:
    explicit locked_values(rare_part& of) noexcept : flag_(of.values_busy) {
        while (flag_.test_and_set(std::memory_order_acquire))
            amalgam::detail::cpu_relax();
    }
    ~locked_values() { flag_.clear(std::memory_order_release); }
    locked_values(const locked_values&) = delete;
    locked_values& operator=(const locked_values&) = delete;

private:
    std::atomic_flag& flag_;
};

}  // namespace

namespace amalgam::argobots {

int set_value(ABT_thread_opaque& who, ABT_key key, void* value) {
    if (key == nullptr) return ABT_ERR_INV_KEY;
    return guarded([&] {
        rare_part& of = who.rare_part();
        const locked_values hold(of);
        for (key_value& each : of.values) {
            if (each.key != key->id) continue;
            each.value = value;
            return ABT_SUCCESS;
        }
        of.values.push_back({key->id, key->destroy, value});
        return ABT_SUCCESS;
    });
}

int get_value(ABT_thread_opaque& who, ABT_key key, void** value) {
    *value = nullptr;
    if (key == nullptr) return ABT_ERR_INV_KEY;
    rare_part* const of = who.rare.load(std::memory_order_acquire);
    if (of == nullptr) return ABT_SUCCESS;
    const locked_values hold(*of);
    for (const key_value& each : of->values) {
        if (each.key == key->id) *value = each.value;
    }
    return ABT_SUCCESS;
}

}  // namespace amalgam::argobots

int ABT_key_create(void (*destructor)(void* value), ABT_key* newkey) {
    return guarded([=] {
        *newkey = new ABT_key_opaque{next_key.fetch_add(1), destructor};
        return ABT_SUCCESS;
    });
}

int ABT_key_free(ABT_key* key) {
    if (*key == nullptr) return ABT_ERR_INV_KEY;
    delete *key;
    *key = nullptr;
    return ABT_SUCCESS;
}

int ABT_key_set(ABT_key key, void* value) {
    return ABT_self_set_specific(key, value);
}

int ABT_key_get(ABT_key key, void** value) {
    return ABT_self_get_specific(key, value);
}
