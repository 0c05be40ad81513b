#pragma once

#include <amalgam/directory/attributes.hpp>
#include <amalgam/directory/resource_id.hpp>

namespace amalgam {

/// The answer to a query.
struct found_resource {
    resource_id id = resource_id::none;       ///< The resource that matches.
    resource_id context = resource_id::none;  ///< Its owner; none if it is itself a context.
    attribute_list
        what;  ///< The query; open attributes are filled in as far as the resource has them.
};

}  // namespace amalgam
