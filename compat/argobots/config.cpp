#include "config.hpp"

#include <cstdarg>
#include <cstring>
#include <map>

using namespace amalgam::argobots;

ABT_sched_config_var ABT_sched_config_var_end = {-1, ABT_SCHED_CONFIG_INT};
ABT_sched_config_var ABT_sched_basic_freq = {-2, ABT_SCHED_CONFIG_INT};
ABT_sched_config_var ABT_sched_config_access = {-3, ABT_SCHED_CONFIG_INT};
ABT_sched_config_var ABT_sched_config_automatic = {-4, ABT_SCHED_CONFIG_INT};
const ABT_pool_config_var ABT_pool_config_automatic = {-2, ABT_POOL_CONFIG_INT};

namespace amalgam::argobots {

void setting::write(void* to) const noexcept {
    if (to == nullptr) return;
    if (type == ABT_SCHED_CONFIG_INT) std::memcpy(to, &value, sizeof(int));
    if (type == ABT_SCHED_CONFIG_DOUBLE) std::memcpy(to, &value, sizeof(double));
    if (type == ABT_SCHED_CONFIG_PTR) std::memcpy(to, &value, sizeof(void*));
}

void settings::set(int key, int type, const void* from) {
    if (from == nullptr) {
        values_.erase(key);
        return;
    }
    if (type < ABT_SCHED_CONFIG_INT || type > ABT_SCHED_CONFIG_PTR) throw failure{ABT_ERR_INV_ARG};
    setting& what = values_[key];
    what.type = type;
    std::memcpy(&what.value, from, type == ABT_SCHED_CONFIG_INT ? sizeof(int) : sizeof(double));
}

const setting* settings::find(int key) const noexcept {
    const auto at = values_.find(key);
    return at == values_.end() ? nullptr : &at->second;
}

int settings::int_or(int key, int otherwise) const noexcept {
    const setting* const what = find(key);
    if (what == nullptr || what->type != ABT_SCHED_CONFIG_INT) return otherwise;
    int value = 0;
    what->write(&value);
    return value;
}

}  // namespace amalgam::argobots

int ABT_sched_config_create(ABT_sched_config* config, ...) {
    *config = nullptr;
    va_list given;
    va_start(given, config);
    const int error = guarded([&] {
        auto made = std::make_unique<ABT_sched_config_opaque>();
        for (;;) {
            const auto var = va_arg(given, ABT_sched_config_var);
            if (var.idx == ABT_sched_config_var_end.idx) break;
            if (var.type == ABT_SCHED_CONFIG_INT) {
                const int value = va_arg(given, int);
                made->all.set(var.idx, var.type, &value);
            } else if (var.type == ABT_SCHED_CONFIG_DOUBLE) {
                const double value = va_arg(given, double);
                made->all.set(var.idx, var.type, &value);
            } else {
                void* const value = va_arg(given, void*);
                made->all.set(var.idx, var.type, &value);
            }
        }
        *config = made.release();
        return ABT_SUCCESS;
    });
    va_end(given);
    return error;
}

int ABT_sched_config_read(ABT_sched_config config, int num_vars, ...) {
    if (config == nullptr) return ABT_ERR_INV_SCHED_CONFIG;
    va_list wanted;
    va_start(wanted, num_vars);
    for (int i = 0; i < num_vars; ++i) {
        void* const to = va_arg(wanted, void*);
        if (const setting* const what = config->all.find(i)) what->write(to);
    }
    va_end(wanted);
    return ABT_SUCCESS;
}

int ABT_sched_config_free(ABT_sched_config* config) {
    if (*config == nullptr) return ABT_ERR_INV_SCHED_CONFIG;
    delete *config;
    *config = nullptr;
    return ABT_SUCCESS;
}

int ABT_sched_config_set(ABT_sched_config config, int idx, ABT_sched_config_type type,
                         const void* val) {
    if (config == nullptr) return ABT_ERR_INV_SCHED_CONFIG;
    return guarded([=] {
        config->all.set(idx, type, val);
        return ABT_SUCCESS;
    });
}

int ABT_sched_config_get(ABT_sched_config config, int idx, ABT_sched_config_type* p_type,
                         void* val) {
    if (config == nullptr) return ABT_ERR_INV_SCHED_CONFIG;
    const setting* const what = config->all.find(idx);
    if (what == nullptr) return ABT_ERR_INV_ARG;
    if (p_type != nullptr) *p_type = static_cast<ABT_sched_config_type>(what->type);
    what->write(val);
    return ABT_SUCCESS;
}

int ABT_pool_config_create(ABT_pool_config* config) {
    return guarded([config] {
        *config = new ABT_pool_config_opaque;
        return ABT_SUCCESS;
    });
}

int ABT_pool_config_free(ABT_pool_config* config) {
    if (*config == nullptr) return ABT_ERR_INV_POOL_CONFIG;
    delete *config;
    *config = nullptr;
    return ABT_SUCCESS;
}

int ABT_pool_config_set(ABT_pool_config config, int key, ABT_pool_config_type type,
                        const void* val) {
    if (config == nullptr) return ABT_ERR_INV_POOL_CONFIG;
    return guarded([=] {
        config->all.set(key, type, val);
        return ABT_SUCCESS;
    });
}

int ABT_pool_config_get(ABT_pool_config config, int key, ABT_pool_config_type* p_type, void* val) {
    if (config == nullptr) return ABT_ERR_INV_POOL_CONFIG;
    const setting* const what = config->all.find(key);
    if (what == nullptr) return ABT_ERR_INV_ARG;
    if (p_type != nullptr) *p_type = static_cast<ABT_pool_config_type>(what->type);
    what->write(val);
    return ABT_SUCCESS;
}
