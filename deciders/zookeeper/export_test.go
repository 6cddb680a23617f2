package zookeeper

// Examine is examine.
var Examine = examine
