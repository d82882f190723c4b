// Package recipe holds the rules of Recipes that travel with their VolumeReplicationGroup (VRG): what a VRG refers to, what a
// backup brings of it and records of it, how Ramen expands parameters, and what is wrong with a Recipe.
//
// All of it are functions over unstructured objects: the types of Ramen would drop the fields that they do not know, and
// every published shape of a Recipe carries the same version, v1alpha1. Resources are named in full
// (recipes.ramendr.openshift.io): IBM Fusion has Recipes of another group. Nothing here changes what it is given, and nothing
// panics on an object of a wrong shape, because neither Velero nor a backup validates one.
package recipe
