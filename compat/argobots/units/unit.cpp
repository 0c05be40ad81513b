#include "runtime.hpp"

using namespace amalgam::argobots;

int ABT_unit_get_thread(ABT_unit unit, ABT_thread* thread) {
    *thread = thread_of(unit);
    return *thread == nullptr ? ABT_ERR_INV_UNIT : ABT_SUCCESS;
}

int ABT_unit_set_associated_pool(ABT_unit unit, ABT_pool pool) {
    ABT_thread_opaque* const who = thread_of(unit);
    if (who == nullptr) return ABT_ERR_INV_UNIT;
    return ABT_thread_set_associated_pool(who, pool);
}
