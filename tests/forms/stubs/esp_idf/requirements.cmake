# Stands in for ESP-IDF's first look at a component: a script, in which no target may be made, that ends at its call.
set(ESP_PLATFORM 1)

macro(idf_component_register)
    set(REGISTERED TRUE)
    return()
endmacro()

include(${COMPONENT}/CMakeLists.txt)
if(NOT REGISTERED)
    message(FATAL_ERROR "${COMPONENT} registers no component")
endif()
