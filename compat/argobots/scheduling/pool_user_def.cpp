#include "runtime.hpp"
#include "scheduling/pool.hpp"

using namespace amalgam::argobots;

namespace amalgam::argobots {

namespace {

/// Stands in a definition made here, which a user's own struct never has.
ABT_unit made_here(ABT_thread) {
    return nullptr;
}

struct definition : ABT_pool_def {
    definition() noexcept : ABT_pool_def{} { u_create_from_thread = &made_here; }
    pool_functions functions;
};

template <typename Function>
int set_function(ABT_pool_user_def def, Function pool_functions::*which, Function to) {
    pool_functions* const made = def == nullptr ? nullptr : made_pool_functions(def);
    if (made == nullptr) return ABT_ERR_INV_POOL_USER_DEF;
    made->*which = to;
    return ABT_SUCCESS;
}

}  // namespace

pool_functions* made_pool_functions(ABT_pool_user_def def) noexcept {
    if (def->u_create_from_thread != &made_here) return nullptr;
    return &static_cast<definition*>(def)->functions;
}

}  // namespace amalgam::argobots

int ABT_pool_user_def_create(ABT_pool_user_create_unit_fn p_create_unit,
                             ABT_pool_user_free_unit_fn p_free_unit,
                             ABT_pool_user_is_empty_fn p_is_empty, ABT_pool_user_pop_fn p_pop,
                             ABT_pool_user_push_fn p_push, ABT_pool_user_def* newdef) {
    *newdef = nullptr;
    if (p_create_unit == nullptr || p_free_unit == nullptr || p_is_empty == nullptr ||
        p_pop == nullptr || p_push == nullptr)
        return ABT_ERR_INV_ARG;
    return guarded([=] {
        auto made = std::make_unique<definition>();
        made->functions.create_unit = p_create_unit;
        made->functions.free_unit = p_free_unit;
        made->functions.is_empty = p_is_empty;
        made->functions.pop = p_pop;
        made->functions.push = p_push;
        *newdef = made.release();
        return ABT_SUCCESS;
    });
}

int ABT_pool_user_def_free(ABT_pool_user_def* def) {
    if (*def == nullptr || made_pool_functions(*def) == nullptr) return ABT_ERR_INV_POOL_USER_DEF;
    delete static_cast<definition*>(*def);
    *def = nullptr;
    return ABT_SUCCESS;
}

int ABT_pool_user_def_set_init(ABT_pool_user_def def, ABT_pool_user_init_fn p_init) {
    return set_function(def, &pool_functions::init, p_init);
}

int ABT_pool_user_def_set_free(ABT_pool_user_def def, ABT_pool_user_free_fn p_free) {
    return set_function(def, &pool_functions::free, p_free);
}

int ABT_pool_user_def_set_get_size(ABT_pool_user_def def, ABT_pool_user_get_size_fn p_get_size) {
    return set_function(def, &pool_functions::get_size, p_get_size);
}

int ABT_pool_user_def_set_pop_wait(ABT_pool_user_def def, ABT_pool_user_pop_wait_fn p_pop_wait) {
    return set_function(def, &pool_functions::pop_wait, p_pop_wait);
}

int ABT_pool_user_def_set_pop_many(ABT_pool_user_def def, ABT_pool_user_pop_many_fn p_pop_many) {
    return set_function(def, &pool_functions::pop_many, p_pop_many);
}

int ABT_pool_user_def_set_push_many(ABT_pool_user_def def, ABT_pool_user_push_many_fn p_push_many) {
    return set_function(def, &pool_functions::push_many, p_push_many);
}

int ABT_pool_user_def_set_print_all(ABT_pool_user_def def, ABT_pool_user_print_all_fn p_print_all) {
    return set_function(def, &pool_functions::print_all, p_print_all);
}
