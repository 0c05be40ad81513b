#include "runtime.hpp"

using namespace amalgam::argobots;

namespace amalgam::argobots {

std::size_t stack_bytes_of(const ABT_thread_attr_opaque& attr) noexcept {
    if (attr.stack_bytes != 0) return attr.stack_bytes;
    const std::size_t set = initialized() ? runtime::get()->default_stack_bytes() : 0;
    constexpr std::size_t usual = 256 * 1024;
    return set == 0 ? usual : set;
}

}  // namespace amalgam::argobots

namespace {

std::size_t told_bytes(const ABT_thread_attr_opaque& attr) noexcept {
    return attr.has_no_stack ? 0 : stack_bytes_of(attr);
}

void set_size(ABT_thread_attr_opaque& attr, std::size_t bytes) noexcept {
    attr.stack_bytes = bytes;
    attr.told_stack = nullptr;
    attr.has_no_stack = false;
}

}  // namespace

int ABT_thread_attr_create(ABT_thread_attr* newattr) {
    return guarded([newattr] {
        *newattr = new ABT_thread_attr_opaque;
        return ABT_SUCCESS;
    });
}

int ABT_thread_attr_free(ABT_thread_attr* attr) {
    if (*attr == nullptr) return ABT_ERR_INV_THREAD_ATTR;
    delete *attr;
    *attr = nullptr;
    return ABT_SUCCESS;
}

int ABT_thread_attr_set_stack(ABT_thread_attr attr, void* stackaddr, size_t stacksize) {
    if (attr == nullptr) return ABT_ERR_INV_THREAD_ATTR;
    if (reinterpret_cast<std::uintptr_t>(stackaddr) % 8 != 0) return ABT_ERR_INV_ARG;
    attr->stack = stackaddr;
    set_size(*attr, stacksize);
    return ABT_SUCCESS;
}

int ABT_thread_attr_get_stack(ABT_thread_attr attr, void** stackaddr, size_t* stacksize) {
    if (attr == nullptr) return ABT_ERR_INV_THREAD_ATTR;
    *stackaddr = attr->stack != nullptr ? attr->stack : attr->told_stack;
    *stacksize = told_bytes(*attr);
    return ABT_SUCCESS;
}

int ABT_thread_attr_set_stacksize(ABT_thread_attr attr, size_t stacksize) {
    if (attr == nullptr) return ABT_ERR_INV_THREAD_ATTR;
    set_size(*attr, stacksize);
    return ABT_SUCCESS;
}

int ABT_thread_attr_get_stacksize(ABT_thread_attr attr, size_t* stacksize) {
    if (attr == nullptr) return ABT_ERR_INV_THREAD_ATTR;
    *stacksize = told_bytes(*attr);
    return ABT_SUCCESS;
}

int ABT_thread_attr_set_callback(ABT_thread_attr attr,
                                 void (*cb_func)(ABT_thread thread, void* cb_arg), void* cb_arg) {
    if (attr == nullptr) return ABT_ERR_INV_THREAD_ATTR;
    attr->on_migration = cb_func;
    attr->on_migration_arg = cb_arg;
    return ABT_SUCCESS;
}

int ABT_thread_attr_set_migratable(ABT_thread_attr attr, ABT_bool is_migratable) {
    if (attr == nullptr) return ABT_ERR_INV_THREAD_ATTR;
    attr->migratable = is_migratable != ABT_FALSE;
    return ABT_SUCCESS;
}
