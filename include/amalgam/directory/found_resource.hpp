#pragma once

#include <amalgam/directory/attributes.hpp>
#include <amalgam/directory/resource_id.hpp>

namespace amalgam {

/// A resource that a query was answered with.
struct found_resource {
    resource_id id = resource_id::none;
    resource_id context = resource_id::none;  ///< Whose it is; none: it is a context itself.
    attribute_list
        what;  ///< The query, its open attributes filled as far as the resource has them.
};

}  // namespace amalgam
